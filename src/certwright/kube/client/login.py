"""Client credentials: tokens and client certificates, constant or changing.

A light module: the code that runs programs is in `exec_plugin.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

FRESH_S = 60.0
"""How long a file's contents are used before it is read again, as client-go does with token files."""


class LoginFailed(Exception):
    """No credentials are available at the moment. The text is one sentence without secrets."""


class Credential(msgspec.Struct, frozen=True):
    """A bearer token, a client certificate with its key (both in PEM form), or both, or neither."""

    token: str = ""
    cert_pem: bytes = b""
    key_pem: bytes = b""

    def __repr__(self) -> str:
        return f"Credential(cert_pem={self.cert_pem!r})"


class Login(Protocol):
    """Provides the current credential; called before every request, so it MUST be quick when nothing has
    changed. Safe to use concurrently."""

    async def credential(self) -> Credential:
        """The credential to send to the server. Raises `LoginFailed`."""

    def refused(self, credential: Credential) -> bool:
        """Record that the server refused the credential (401). Returns whether the next call may give another
        credential."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """An exec credential plugin, as the kubeconfig describes it.

    `place` names it in messages; `cluster` is the server's description that the program receives, None
    without `provideClusterInfo`. `interactive` is `Never`, `IfAvailable` or `Always`.
    """

    place: str
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    folder: Path = Path()
    interactive: str = "IfAvailable"
    install_hint: str = ""
    cluster: dict[str, Any] | None = None


class FixedLogin:
    """A credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def credential(self) -> Credential:
        """The credential."""
        return self._credential

    def refused(self, credential: Credential) -> bool:
        """Whether `credential` is not this one, because there is no other."""
        return credential != self._credential


class LoginFiles(msgspec.Struct, frozen=True):
    """The files that are read again; None if that part does not come from a file."""

    token: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class FileLogin:
    """A credential in files that other programs replace: a pod's token, a node's certificate.

    The files are read again after a minute, and when the server refuses their credentials. If they cannot be
    read, or a certificate and its key do not match yet (they are written one after the other), the last valid
    contents stay in use. `fits` returns whether a certificate and a key belong together. `first` is used for
    parts without a file, and until a file has been read.
    """

    def __init__(
        self,
        files: LoginFiles,
        first: Credential,
        *,
        fits: Callable[[Credential], bool] = lambda _: True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._fits = fits
        self._now = now
        self._current = first
        self._read_at = -FRESH_S

    async def credential(self) -> Credential:
        """The credential in the files. Raises `LoginFailed` when the token cannot be read and never could."""
        if self._now() - self._read_at >= FRESH_S:
            self._read()
        return self._current

    def refused(self, credential: Credential) -> bool:
        """Whether the files have another credential by now."""
        if credential != self._current:
            return True
        self._read()
        return credential != self._current

    def _read(self) -> None:
        credential = Credential(self._token(), *self._pair())
        if credential != self._current and self._fits(credential):
            self._current = credential
        self._read_at = self._now()

    def _token(self) -> str:
        path = self._files.token
        if path is None:
            return self._current.token
        try:
            token = path.read_text().strip()
        except (OSError, ValueError) as error:
            # The last one read may still be valid for a while.
            if self._current.token:
                return self._current.token
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise LoginFailed(f"the token cannot be read: {path}: {reason}") from None
        return token or self._current.token

    def _pair(self) -> tuple[bytes, bytes]:
        old = self._current
        try:
            cert = self._files.cert.read_bytes() if self._files.cert is not None else old.cert_pem
            key = self._files.key.read_bytes() if self._files.key is not None else old.key_pem
        except OSError:
            return old.cert_pem, old.key_pem
        return cert, key
