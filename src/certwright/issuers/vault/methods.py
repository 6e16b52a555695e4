"""Authentication methods of Vault: the contract, and those that need nothing but a spec and its Secrets.

Source: cert-manager `internal/vault/vault.go`; Vault API reference, `auth/*`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from certwright.issuers.contract import ServerTools
from certwright.kube.api.errors import ApiError, Unreachable


class BadSettings(Exception):
    """The spec, or a Secret that it names, cannot be used. The message is one sentence with the fix."""

    def __init__(self, message: str, *, secret: str = "", is_missing: bool = False) -> None:
        super().__init__(message)
        self.secret = secret
        self.is_missing = is_missing


class Method(Protocol):
    """A way to log in. A frozen dataclass: with equal methods a token is used again."""

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:
        """The login request. Raises `BadSettings`."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token from a Secret; no login."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginCall:
    """A login at `path` (begins with `/v1/`) with these fields."""

    path: str
    fields: tuple[tuple[str, str], ...] = field(repr=False)

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:  # noqa: ARG002
        return self


class ServiceAccountLogin(msgspec.Struct, frozen=True):
    """A login by the Kubernetes method, for which a ServiceAccount's token is requested each time."""

    path: str
    role: str
    account: str
    audiences: tuple[str, ...]

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:  # noqa: ARG002
        try:
            jwt = await servers.get_token(self.account, self.audiences)
        except (ApiError, Unreachable) as error:
            raise BadSettings(
                f'no token of the ServiceAccount "{self.account}" in '
                f"spec.vault.auth.kubernetes.serviceAccountRef: {error}"
            ) from error
        return LoginCall(self.path, (("role", self.role), ("jwt", jwt)))
