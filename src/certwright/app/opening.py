"""Prerequisites of the daemon: its directory, its tokens and their users, its port.

Failures raise `StartError`, with a sentence for the user.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from certwright.app import tls_identity
from certwright.app.controllers import Closers
from certwright.app.options import ServeOptions, StartError
from certwright.kube.api import naming
from certwright.kube.apiserver.auth.authentication import StaticTokens, read_token_file
from certwright.kube.apiserver.http import https
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import in_brackets
from certwright.kube.util.files import AlreadyLocked, FileLock, write_atomically
from certwright.kube.util.http_messages import Handler, Identity, Request

_FILES = 8192


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert file errors below `path` into a sentence."""
    try:
        yield
    except OSError as error:
        raise StartError(_cannot_write(path, error)) from error


def lock_data_dir(data_dir: Path, closers: Closers) -> None:
    """Create the directory if missing, and lock it for this process."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(data_dir / "lock", holder=f"process {os.getpid()}")
        lock.acquire()
    except AlreadyLocked as error:
        raise StartError(
            f"{data_dir} is in use by another certwright ({error.holder or 'unknown process'}); "
            "stop that one, or choose another --data-dir; `certwright apply -f FILE` gives it manifests"
        ) from error
    except OSError as error:
        raise StartError(_cannot_write(data_dir, error)) from error

    async def release() -> None:
        lock.release()

    closers.add(release)


def replica_identity(data_dir: Path) -> str:
    """The identity of this server's controllers on their Lease: the same at each start on this directory,
    which one process at a time can use (`lock_data_dir`). A copy of the directory, or the directory on
    another machine, gets a different identity."""
    path = data_dir / "replica-identity"
    place = f"{socket.gethostname()} {data_dir.stat().st_ino}"
    with suppress(OSError, ValueError):
        identity, where = path.read_text().splitlines()
        if where == place and identity:
            return identity
    identity = f"{socket.gethostname()}_{naming.new_uid()}"
    write_atomically(path, f"{identity}\n{place}\n".encode())
    return identity


def _cannot_write(path: Path, error: OSError) -> str:
    what = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"the disk that holds {path} is full"
    if error.filename and Path(error.filename) != path and Path(error.filename).exists():
        return f"{error.filename} cannot be used: {what}; it has to be a file of the user that runs this"
    return f"cannot write to {path}: {what}; choose a directory that this user may write to with --data-dir"


def admin_token_path(data_dir: Path) -> Path:
    """The file of the administrator's bearer token."""
    return data_dir / "pki" / "admin.token"


def admin_token(data_dir: Path) -> str:
    """The administrator's bearer token: the existing token, or a new one."""
    path = admin_token_path(data_dir)
    if path.exists() and (token := path.read_text().strip()):
        return token
    token = secrets.token_urlsafe(32)
    write_atomically(path, token.encode())
    return token


def tokens(options: ServeOptions) -> dict[str, Identity]:
    """The tokens in the file that the options name."""
    if options.token_auth_file is None:
        return {}
    try:
        return read_token_file(options.token_auth_file)
    except OSError as error:
        raise StartError(f"--token-auth-file {options.token_auth_file}: {error.strerror or error}") from error
    except ValueError as error:
        raise StartError(f"--token-auth-file {error}") from error


async def listen(
    handler: Handler, options: ServeOptions, identity: tls_identity.ServingIdentity
) -> https.HttpsServer:
    """Serve HTTPS on the configured address."""
    # Raise the soft limit of open files, because each connection is a file. The soft limit is low only for
    # the sake of programs that use `select`; operators limit us by the hard limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        return await https.serve_https(
            handler,
            host=options.host,
            port=options.port,
            certfile=identity.cert_path,
            keyfile=identity.key_path,
            client_ca_file=options.client_ca_file or identity.ca_path,
            is_fair=options.in_flight.priority_and_fairness,
        )
    except ssl.SSLError as error:
        if options.client_ca_file is None:
            raise
        raise StartError(
            f"--client-ca-file {options.client_ca_file} holds no CA certificates in PEM form"
        ) from error
    except OSError as error:
        if options.client_ca_file is not None and not options.client_ca_file.exists():
            raise StartError(f"--client-ca-file {options.client_ca_file} does not exist") from error
        where = f"{in_brackets(options.host)}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            hint = (
                "stop the program that has it, or choose another port with --listen (port 0 picks a free one)"
            )
            raise StartError(f"port {options.port} on {options.host} is in use; {hint}") from error
        hint = ""
        if isinstance(error, PermissionError):
            hint = "; ports below 1024 need the right CAP_NET_BIND_SERVICE, or choose another with --listen"
        raise StartError(f"cannot listen on {where}: {error.strerror or error}{hint}") from error


def in_url(host: str) -> str:
    """A host as part of a URL; a wildcard address becomes the loopback address."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - not bound here: written into the kubeconfig
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return in_brackets(host)


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
