"""Kubeconfig selection and the connection to the server.

Order: `--kubeconfig`, `$KUBECONFIG`, in a pod its ServiceAccount, `./certwright-data/kubeconfig`, and for
root
that of the service, `/var/lib/certwright/kubeconfig`. Connection errors name the chosen file and the reason
for
the choice, because a wrong file is the usual cause.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from certwright import __version__
from certwright.cli.errors import Failed, report_warning
from certwright.cli.options import ServerOptions
from certwright.diagnosis.words import at
from certwright.kube.api.errors import Forbidden, NoApi, NoCredentials, Unauthorized, Unreachable, Untrusted
from certwright.kube.client import kubeconfig
from certwright.kube.client.discovery import UnknownKind
from certwright.kube.client.https import HEARTBEAT_S
from certwright.kube.client.kubeconfig import ClusterAccess
from certwright.kube.client.kubeconfig_file import KubeconfigError
from certwright.kube.client.rest import Client
from certwright.kube.client.tokens import Claims, claims_of
from certwright.kube.client.transport import Transport
from certwright.kube.util.connections import is_this_machine
from certwright.kube.util.http_messages import Response

DEFAULT_DATA_DIR = Path("certwright-data")
SERVICE_DATA_DIR = Path("/var/lib/certwright")
"""The data directory of the service; only root and the service's user may enter it."""
USER_AGENT = f"certwright/{__version__}"
USERS: Final = "certwright-users"
"""The namespace of the users that `certwright user create` makes."""
_SLOW_S: Final = 5.0
_WARN_WITHIN_S: Final = 7 * 86_400
# OpenSSL, x509_vfy.h: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH;
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_OTHER_NAME: Final = (62, 64)
_OTHER_TIME: Final = (9, 10)


class Choice(msgspec.Struct, frozen=True):
    """The chosen kubeconfig (several files count as one), and the reason for the choice, for messages.

    No file at all means the ServiceAccount of the pod.
    """

    paths: tuple[Path, ...]
    why: str

    def __str__(self) -> str:
        if not self.paths:
            return f"of the pod's service account ({self.why})"
        return f"{os.pathsep.join(map(str, self.paths))} ({self.why})"


class _Patient:
    """A transport that prints once what a request waits for, so that a slow server is visible."""

    def __init__(self, transport: Transport, server: str) -> None:
        self._transport, self._server = transport, server
        self._is_printed = False

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """See `Transport`."""
        notice = asyncio.get_running_loop().call_later(_SLOW_S, self._notice)
        try:
            return await self._transport.request(method, target, headers=headers, body=body)
        finally:
            notice.cancel()

    def _notice(self) -> None:
        if not self._is_printed:
            report_warning(f"still waiting for an answer of {self._server}")
        self._is_printed = True

    async def close(self) -> None:
        """See `Transport`."""
        await self._transport.close()


class Session(msgspec.Struct, frozen=True):
    """A connected client, and the default namespace of commands without `-n`."""

    client: Client
    namespace: str


def choose(option: Path | None, environment: Mapping[str, str], folder: Path) -> Choice:
    """Choose the kubeconfig. `folder` is the working directory. Raises `Failed` if there is none."""
    if option is not None:
        return Choice((option,), "from --kubeconfig")
    if named := kubeconfig.from_environment(environment.get("KUBECONFIG", "")):
        return Choice(tuple(named), "from $KUBECONFIG")
    if kubeconfig.is_in_cluster(environment):
        return Choice((), "neither --kubeconfig nor $KUBECONFIG is given")
    default = DEFAULT_DATA_DIR / "kubeconfig"
    if (folder / default).exists():
        return Choice((default,), "the default place")
    service = SERVICE_DATA_DIR / "kubeconfig"
    if os.access(service, os.R_OK):
        return Choice((service,), "that of the service on this machine")
    advice = (
        "start one here with `certwright serve` (`sudo certwright setup service`: as a service), or name its "
        "kubeconfig with --kubeconfig"
    )
    if SERVICE_DATA_DIR.exists() and os.geteuid() != 0:
        advice = (
            "of the service on this machine only root may use the kubeconfig: run this with sudo, or have "
            "a user made "
            "by `sudo certwright user create NAME`"
        )
    raise Failed(
        "no server configured: --kubeconfig is not given, $KUBECONFIG is not set, "
        f"and ./{default} does not exist; {advice}"
    )


@asynccontextmanager
async def session(
    options: ServerOptions,
    *,
    heartbeat_s: int = HEARTBEAT_S,
    instead: Callable[[ClusterAccess], ClusterAccess] = lambda access: access,
) -> AsyncIterator[Session]:
    """Connect to the chosen server, and disconnect afterwards. Watches end when it is silent for twice
    `heartbeat_s`. `instead` returns another server for the same user.

    Raises `Failed`, also for a connection that breaks inside the block, or a kind that the server lacks.
    """
    choice = choose(options.kubeconfig, os.environ, Path.cwd())
    access = instead(load(choice, options.context))
    transport = connect(choice, access, heartbeat_s=heartbeat_s)
    try:
        namespace = options.namespace or access.namespace or "default"
        patient = _Patient(transport, access.server)
        # Warn in the last days of a token, before machines stand without one.
        claims, now = claims_of(access.token), datetime.now(UTC)
        if claims.end is not None and claims.end > now and claims.ends_soon(now, within_s=_WARN_WITHIN_S):
            report_warning(f"the token of {choice} ends at {at(claims.end)}; {_new_token(claims)}")
        yield Session(Client(patient, user_agent=USER_AGENT, on_warning=report_warning), namespace)
    except Untrusted as error:
        raise Failed(_untrusted(choice, access, error)) from error
    except NoCredentials as error:
        raise Failed(f"the kubeconfig {choice} cannot be used: {error}") from error
    except NoApi as error:
        raise Failed(
            f"{access.server} of {choice} does not answer as a Kubernetes API does: {error}; is it the "
            "address of another program, or does a proxy answer? --kubeconfig names another server"
        ) from error
    except Unreachable as error:
        advice = "is it running there, and does this machine reach it? --kubeconfig names another"
        if is_this_machine(urlsplit(access.server).hostname or ""):
            advice = "is the server running? `certwright serve` starts it, --kubeconfig names another"
        service = SERVICE_DATA_DIR / "kubeconfig"
        if choice.paths == (DEFAULT_DATA_DIR / "kubeconfig",) and os.access(service, os.R_OK):
            advice = f"that of the service on this machine is --kubeconfig {service}"
        raise Failed(
            f"the server {access.server} of {choice} cannot be reached: {str(error).rstrip('.')}; {advice}"
        ) from error
    except Unauthorized as error:
        raise Failed(_unauthorized(choice, access, error)) from error
    except Forbidden as error:
        raise Failed(f"{access.server} of {choice} rejected the request: {error}") from error
    except UnknownKind as error:
        raise Failed(str(error)) from error
    finally:
        await transport.close()


def load(choice: Choice, context: str | None) -> ClusterAccess:
    """Read the chosen kubeconfig. Raises `Failed`."""
    if not choice.paths:
        if context is not None:
            raise Failed(
                f"--context {context} names a part of a kubeconfig, and none is given; see --kubeconfig"
            )
        try:
            cluster_access = kubeconfig.in_cluster(os.environ)
        except KubeconfigError as error:
            raise Failed(f"the pod's service account cannot be used: {error}") from error
        assert cluster_access is not None
        return cluster_access
    if not any(path.exists() for path in choice.paths):
        raise Failed(
            f"the kubeconfig {choice} does not exist; `certwright serve` writes one, or name another"
        )
    try:
        return kubeconfig.load(choice.paths, context)
    except KubeconfigError as error:
        raise Failed(_unusable(choice, error)) from error


def connect(choice: Choice, access: ClusterAccess, *, heartbeat_s: int = HEARTBEAT_S) -> Transport:
    """A transport to the server. Raises `Failed` for unusable credentials."""
    try:
        return kubeconfig.connect(access, heartbeat_s=heartbeat_s)
    except KubeconfigError as error:
        raise Failed(_unusable(choice, error)) from error


def _unusable(choice: Choice, error: KubeconfigError) -> str:
    sentence = str(error)
    for path in choice.paths:
        sentence = sentence.removeprefix(f"{path}: ")
    if any(path.exists() and not os.access(path, os.R_OK) for path in choice.paths):
        sentence += "; run it with sudo, or have `certwright user create` make a kubeconfig for you"
    return f"the kubeconfig {choice} cannot be used: {sentence}"


def _unauthorized(choice: Choice, access: ClusterAccess, error: Unauthorized) -> str:
    claims = claims_of(access.token)
    if claims.end is not None and claims.end <= datetime.now(UTC):
        return f"the token of {choice} ended at {at(claims.end)}; {_new_token(claims)}"
    fix = _new_token(claims) if claims.account[0] == USERS else "use the kubeconfig written at startup"
    return (
        f"{access.server} of {choice} rejected the request: {error}; the token or certificate is not "
        f"valid there; {fix}"
    )


def _new_token(claims: Claims) -> str:
    namespace, name = claims.account
    if namespace == USERS:
        user = f"certwright user create {name}"
        return f"on the server, `{user}` with its --role or --certificates makes a new one"
    return "ask the server's administrator for a new kubeconfig"


def _untrusted(choice: Choice, access: ClusterAccess, error: Untrusted) -> str:
    problem = str(error).rstrip(".")
    if error.verify_code in _OTHER_NAME:
        name = access.server_name or urlsplit(access.server).hostname
        return (
            f"{problem}; start the server with --tls-san {name}, or use one of its other names in the "
            f"kubeconfig {choice}"
        )
    if error.verify_code in _OTHER_TIME:
        return f"{problem}; check the clocks of this machine and of the server"
    return (
        f"{problem}; if the kubeconfig {choice} is that of another server, take the one that "
        "this server wrote at startup, or name another with --kubeconfig"
    )
