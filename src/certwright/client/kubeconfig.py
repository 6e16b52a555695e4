"""Where the API server is and who we are there, from a kubeconfig file or from inside a pod.

Source: Kubernetes client authentication, `kubeconfig (v1)`.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from certwright.kit.files import write_atomically

if TYPE_CHECKING:
    from certwright.client.https import HttpsTransport

T = TypeVar("T")

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_FRESH_S = 60.0


class KubeconfigError(Exception):
    """The file cannot be used; the text is one sentence that names file, context and field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """A server, and the credentials for it.

    `source` says in words where this comes from, for messages. `namespace` is the context's, empty where it
    has none. `token_file` is read again every minute and comes before `token`.
    """

    server: str
    source: str
    namespace: str = ""
    ca_pem: bytes = b""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    client_cert_pem: bytes = b""
    client_key_pem: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Exec(msgspec.Struct):
    command: str = ""


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    exec: _Exec | None = None
    auth_provider: Any = None
    username: str = ""
    as_: str = msgspec.field(default="", name="as")


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Config(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in which file we are, for messages and for relative paths."""

    file: Path
    what: str

    def error(self, sentence: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {self.what}: {sentence}")


def load(path: Path | Sequence[Path], context: str | None = None) -> ClusterAccess:
    """The server and credentials of `context` (None: the file's current one).

    Several files are read as kubectl reads `$KUBECONFIG`: missing ones are passed over, and of equal names
    the first counts. Raises `KubeconfigError`.
    """
    paths = [path] if isinstance(path, Path) else [p for p in path if p.exists()]
    configs = [(file, _read(file)) for file in paths]
    names = ", ".join(str(file) for file in paths)
    if not configs:
        raise KubeconfigError("none of the kubeconfig files exists")
    wanted = context or next((c.current_context for _, c in configs if c.current_context), "")
    known = {item.name: (file, item.context) for file, c in reversed(configs) for item in c.contexts or ()}
    if not wanted:
        raise KubeconfigError(f"{names}: current-context is not set; choose one of: {_list(known)}")
    if wanted not in known:
        raise KubeconfigError(f'{names}: there is no context "{wanted}"; there are: {_list(known)}')
    file, chosen = known[wanted]
    clusters = {item.name: (f, item.cluster) for f, c in reversed(configs) for item in c.clusters or ()}
    users = {item.name: (f, item.user) for f, c in reversed(configs) for item in c.users or ()}
    place = _Place(file, f'context "{wanted}"')
    cluster = _named(clusters, chosen.cluster, place, "cluster")
    user = _named(users, chosen.user, place, "user") if chosen.user else (file, _User())
    return _access(cluster, user, place, chosen)


def in_cluster(environ: Mapping[str, str], directory: Path = _SERVICE_ACCOUNT) -> ClusterAccess | None:
    """The access that Kubernetes gives to the program in a pod; None outside. Raises `KubeconfigError`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (directory / "token").exists():
        return None
    place = _Place(directory, "service account")
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source="the pod's service account",
        namespace=_file(place, "namespace", "namespace").decode().strip(),
        ca_pem=_file(place, "ca.crt", "ca.crt"),
        token_file=directory / "token",
    )


def connect(access: ClusterAccess) -> HttpsTransport:
    """A transport to that server; nothing is sent yet. Raises `KubeconfigError` for credentials that cannot
    be used."""
    # Not at the top: aiohttp is large, and most processes have no use for it.
    from certwright.client.https import BadCredentials, HttpsTransport, tls_context

    try:
        tls = tls_context(
            ca_pem=access.ca_pem,
            client_cert_pem=access.client_cert_pem,
            client_key_pem=access.client_key_pem,
            insecure=access.insecure,
        )
    except BadCredentials as error:
        raise KubeconfigError(f"{access.source}: {error}") from None
    return HttpsTransport(
        access.server,
        tls=tls,
        token=token_source(access),
        server_name=access.server_name,
        proxy=access.proxy,
    )


def token_source(
    access: ClusterAccess, *, now: Callable[[], float] = time.monotonic
) -> Callable[[], str] | None:
    """A function that gives the token of the moment; None where there is none. It raises `OSError` when the
    token's file cannot be read and never could."""
    path = access.token_file
    if path is None:
        token = access.token
        return (lambda: token) if token else None
    token, read_at = access.token, -_TOKEN_FRESH_S

    def current() -> str:
        nonlocal token, read_at
        if now() - read_at >= _TOKEN_FRESH_S:
            try:
                token = path.read_text().strip()
            except OSError:
                # The last one read may well be good for a while yet.
                if not token:
                    raise
            read_at = now()
        return token

    return current


def render(server: str, ca_pem: bytes, token: str, context: str = "certwright") -> bytes:
    """A kubeconfig that holds all it needs: the CA and the token are inside."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def write(path: Path, server: str, ca_pem: bytes, token: str, context: str = "certwright") -> None:
    """Write that kubeconfig, readable by its owner only. Raises `OSError`."""
    write_atomically(path, render(server, ca_pem, token, context))


def from_environment(value: str) -> list[Path]:
    """The files that `$KUBECONFIG` names."""
    return [Path(part) for part in value.split(os.pathsep) if part]


def _read(file: Path) -> _Config:
    try:
        content = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except OSError as error:
        raise KubeconfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(f"{file}: not YAML{where}: {getattr(error, 'problem', error)}") from None
    try:
        return msgspec.convert(content or {}, _Config)
    except msgspec.ValidationError as error:
        sentence = str(error).replace(" - at `$.", ": at `").replace("`", "")
        raise KubeconfigError(f"{file}: not a kubeconfig: {sentence}") from None


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


def _named(known: Mapping[str, T], name: str, place: _Place, what: str) -> T:
    if name not in known:
        raise place.error(f'{what} "{name}" is not in the file; there are: {_list(known)}')
    return known[name]


def _access(
    cluster: tuple[Path, _Cluster], user: tuple[Path, _User], place: _Place, context: _Context
) -> ClusterAccess:
    at, who = cluster[1], user[1]
    in_cluster_file = _Place(cluster[0], f'cluster "{context.cluster}"')
    in_user_file = _Place(user[0], f'user "{context.user}"')
    _check_cluster(at, in_cluster_file)
    _check_user(who, in_user_file)
    cert = _pem(in_user_file, "client-certificate", who.client_certificate, who.client_certificate_data)
    key = _pem(in_user_file, "client-key", who.client_key, who.client_key_data)
    if bool(cert) != bool(key):
        there, missing = ("certificate", "key") if cert else ("key", "certificate")
        raise in_user_file.error(f"there is a client-{there} but no client-{missing}")
    ca = _pem(
        in_cluster_file, "certificate-authority", at.certificate_authority, at.certificate_authority_data
    )
    return ClusterAccess(
        server=at.server,
        source=f"{place.file}, {place.what}",
        namespace=context.namespace,
        ca_pem=ca,
        insecure=at.insecure_skip_tls_verify,
        server_name=at.tls_server_name,
        proxy=at.proxy_url,
        client_cert_pem=cert,
        client_key_pem=key,
        token=who.token,
        token_file=in_user_file.file.parent / who.token_file if who.token_file else None,
    )


def _check_cluster(cluster: _Cluster, place: _Place) -> None:
    if not _is_url(cluster.server):
        raise place.error(f'server: "{cluster.server}" is not an https:// address')
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        raise place.error("insecure-skip-tls-verify and a certificate-authority exclude each other")


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _check_user(user: _User, place: _Place) -> None:
    instead = "use a token, a tokenFile or a client certificate instead"
    if user.exec is not None:
        command = f" ({user.exec.command})" if user.exec.command else ""
        raise place.error(f"exec: log-in by a plugin{command} is not supported; {instead}")
    if user.auth_provider is not None:
        raise place.error(f"auth-provider: log-in by a provider is not supported; {instead}")
    if user.username:
        raise place.error(f"username: log-in by password is not supported; {instead}")
    if user.as_:
        raise place.error("as: acting as somebody else is not supported; leave it out")


def _pem(place: _Place, name: str, path: str, data: str) -> bytes:
    """What is in the file, or in the field with `-data`, which comes first as in kubectl."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise place.error(f"{name}-data is not base64: {error}") from None
    return _file(place, name, path) if path else b""


def _file(place: _Place, name: str, path: str) -> bytes:
    base = place.file if place.file.is_dir() else place.file.parent
    try:
        return (base / path).read_bytes()
    except OSError as error:
        raise place.error(f"{name}: cannot read {base / path}: {error.strerror}") from None
