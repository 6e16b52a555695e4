"""Users by static tokens: the administrator's, and those of `--token-auth-file`. Both can be replaced while
the server runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from certwright.kube.apiserver.auth.authentication import StaticTokens
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity, Request

_log = logging.getLogger(__name__)
_CHECK_EVERY_S = 1.0

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))


class StaticUsers:
    """Authenticator by static tokens.

    The file of the administrator's token is checked with a request, at most once a second, so that a replaced
    token is rejected a second later without a reload. `read_tokens` reads the other tokens; it raises what
    `reload` raises.
    """

    def __init__(
        self, admin_path: Path, read_tokens: Callable[[], dict[str, Identity]], clock: Clock
    ) -> None:
        self._path = admin_path
        self._read_tokens = read_tokens
        self._clock = clock
        self._others = read_tokens()
        self._stamp = self._stat()
        self._check_at = clock.monotonic() + _CHECK_EVERY_S
        self._admin = self._read()
        self._tokens = StaticTokens({**self._others, self._admin: ADMIN})

    def __call__(self, request: Request) -> Identity | None:
        """The identity of the request's token. Raises `Unauthorized` for an unknown token."""
        if (now := self._clock.monotonic()) >= self._check_at:
            self._check_at = now + _CHECK_EVERY_S
            if (stamp := self._stat()) != self._stamp:
                self._stamp = stamp
                self._replace_admin()
        return self._tokens(request)

    def reload(self) -> None:
        """Read both files again. Raises `StartError`; the tokens are then as before."""
        self._others = self._read_tokens()
        self._replace_admin()
        self._tokens.replace({**self._others, self._admin: ADMIN})

    def _replace_admin(self) -> None:
        # A missing or empty file changes nothing: it would lock the administrator out.
        if (token := self._read()) and token != self._admin:
            self._admin = token
            self._tokens.replace({**self._others, token: ADMIN})
            _log.warning("the administrator's token was replaced; the former one is no longer accepted")

    def _read(self) -> str:
        with suppress(OSError, ValueError):
            return self._path.read_text().strip()
        return ""

    def _stat(self) -> tuple[int, int]:
        with suppress(OSError):
            status = self._path.stat()
            return status.st_ino, status.st_mtime_ns
        return 0, 0
