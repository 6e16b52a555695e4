"""Server address and credentials, from a kubeconfig file or from inside a pod.

Source: Kubernetes client authentication, `kubeconfig (v1)`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from certwright.kube.client.https import HEARTBEAT_S, HttpsTransport
from certwright.kube.client.kubeconfig_file import Cluster, Context, Exec, KubeconfigError, Place, User, read
from certwright.kube.client.login import Credential, FileLogin, FixedLogin, Login, LoginFiles, Plugin
from certwright.kube.util.connections import BadCredentials, tls_context

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the credentials for it.

    `source` names the origin in messages. `namespace` is the context's, empty if it has none. `files` are
    read again every minute; a token's file comes before `token`. A `plugin` is run if there is no token.
    """

    server: str
    source: str
    namespace: str = ""
    ca_pem: bytes = b""
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    client_cert_pem: bytes = b""
    client_key_pem: bytes = b""
    token: str = ""
    files: LoginFiles = LoginFiles()
    plugin: Plugin | None = None

    def __repr__(self) -> str:
        return f"ClusterAccess(server={self.server!r}, source={self.source!r})"


def load(path: Path | Sequence[Path], context: str | None = None) -> ClusterAccess:
    """The server and credentials of `context` (None: the file's current one).

    Several files are read as kubectl reads `$KUBECONFIG`: missing ones are skipped, and of equal names the
    first counts. Raises `KubeconfigError`.
    """
    paths = [path] if isinstance(path, Path) else [p for p in path if p.exists()]
    configs = [(file, read(file)) for file in paths]
    names = ", ".join(str(file) for file in paths)
    if not configs:
        raise KubeconfigError("none of the kubeconfig files exists")
    context_name = context or next((c.current_context for _, c in configs if c.current_context), "")
    known = {item.name: (file, item.context) for file, c in reversed(configs) for item in c.contexts or ()}
    if not known:
        raise KubeconfigError(f"{names}: not a kubeconfig: there is no context in it")
    if not context_name:
        raise KubeconfigError(f"{names}: current-context is not set; choose one of: {_list(known)}")
    if context_name not in known:
        raise KubeconfigError(f'{names}: there is no context "{context_name}"; there are: {_list(known)}')
    file, chosen = known[context_name]
    clusters = {item.name: (f, item.cluster) for f, c in reversed(configs) for item in c.clusters or ()}
    users = {item.name: (f, item.user) for f, c in reversed(configs) for item in c.users or ()}
    place = Place(file, f'context "{context_name}"')
    cluster = _named(clusters, chosen.cluster, place, "cluster")
    user = _named(users, chosen.user, place, "user") if chosen.user else (file, User())
    return _access(cluster, user, place, chosen)


def is_in_cluster(environ: Mapping[str, str], directory: Path = _SERVICE_ACCOUNT) -> bool:
    """Whether Kubernetes started this program in a pod, with a ServiceAccount."""
    named = environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT")
    return bool(named) and (directory / "token").exists()


def in_cluster(environ: Mapping[str, str], directory: Path = _SERVICE_ACCOUNT) -> ClusterAccess | None:
    """The access of a pod by its ServiceAccount; None outside a pod. Raises `KubeconfigError`."""
    if not is_in_cluster(environ, directory):
        return None
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    place = Place(directory, "service account")
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source="the pod's service account",
        namespace=_file(place, "namespace", "namespace").decode().strip(),
        ca_pem=_file(place, "ca.crt", "ca.crt"),
        files=LoginFiles(token=directory / "token"),
    )


def connect(access: ClusterAccess, *, heartbeat_s: int = HEARTBEAT_S) -> HttpsTransport:
    """A transport to that server, whose watches have a heartbeat in that interval; nothing is sent yet.
    Raises `KubeconfigError` for unusable credentials."""

    def tls(cert_pem: bytes, key_pem: bytes) -> ssl.SSLContext:
        return tls_context(
            ca_pem=access.ca_pem, client_cert_pem=cert_pem, client_key_pem=key_pem, insecure=access.insecure
        )

    def fits(credential: Credential) -> bool:
        try:
            tls(credential.cert_pem, credential.key_pem)
        except BadCredentials:
            return False
        return True

    try:
        context = tls(access.client_cert_pem, access.client_key_pem)
    except BadCredentials as error:
        raise KubeconfigError(f"{access.source}: {error}") from None
    return HttpsTransport(
        access.server,
        tls=context,
        login=login_for(access, fits),
        certified=tls,
        server_name=access.server_name,
        proxy=access.proxy,
        heartbeat_s=heartbeat_s,
    )


def login_for(access: ClusterAccess, fits: Callable[[Credential], bool] = lambda _: True) -> Login:
    """The login for that server; `fits` returns whether a certificate and a key belong together."""
    first = Credential(access.token, access.client_cert_pem, access.client_key_pem)
    if access.plugin is not None and not access.token and access.files.token is None:
        from certwright.kube.client.exec_plugin import PluginLogin  # it costs every command 5 ms

        return PluginLogin(access.plugin, first)
    return FixedLogin(first) if access.files == LoginFiles() else FileLogin(access.files, first, fits=fits)


def render(
    server: str, ca_pem: bytes, token: str, context: str = "certwright", *, namespace: str = ""
) -> bytes:
    """A self-contained kubeconfig, with the CA and the token inside, and the context's namespace (empty: it
    has none). Secret: write it with mode 0600."""
    import yaml  # 20 ms, of every command

    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    chosen = {"cluster": context, "user": context} | ({"namespace": namespace} if namespace else {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": chosen}],
        "current-context": context,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def from_environment(value: str) -> list[Path]:
    """The files that `$KUBECONFIG` names."""
    return [Path(part) for part in value.split(os.pathsep) if part]


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


def _named(known: Mapping[str, T], name: str, place: Place, what: str) -> T:
    if name not in known:
        raise place.error(f'{what} "{name}" is not in the file; there are: {_list(known)}')
    return known[name]


def _access(
    cluster: tuple[Path, Cluster], user: tuple[Path, User], place: Place, context: Context
) -> ClusterAccess:
    at, who = cluster[1], user[1]
    in_cluster_file = Place(cluster[0], f'cluster "{context.cluster}"')
    in_user_file = Place(user[0], f'user "{context.user}"')
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
        files=_files(who, in_user_file.file.parent),
        plugin=_plugin(who.exec, in_user_file, at, ca) if who.exec is not None else None,
    )


def _files(user: User, folder: Path) -> LoginFiles:
    cert = user.client_certificate if not user.client_certificate_data else ""
    key = user.client_key if not user.client_key_data else ""
    return LoginFiles(*(folder / path if path else None for path in (user.token_file, cert, key)))


def _plugin(exec_config: Exec, place: Place, cluster: Cluster, ca_pem: bytes) -> Plugin:
    if not exec_config.command:
        raise place.error("exec: command is missing; name the program that logs you in")
    if exec_config.api_version not in _EXEC_VERSIONS:
        given = f'"{exec_config.api_version}" is not supported' if exec_config.api_version else "is missing"
        raise place.error(f"exec: apiVersion {given}; write {' or '.join(_EXEC_VERSIONS)}")
    # Optional in v1beta1 only.
    interactive = exec_config.interactive_mode or ("IfAvailable" if "beta" in exec_config.api_version else "")
    if interactive not in _INTERACTIVE_MODES:
        given = f'"{interactive}" is unknown' if interactive else "is missing"
        raise place.error(f"exec: interactiveMode {given}; write one of {', '.join(_INTERACTIVE_MODES)}")
    info = None
    if exec_config.provide_cluster_info:
        extensions = {item.name: item.extension for item in cluster.extensions or ()}
        info = _cluster_info(
            server=cluster.server,
            ca_pem=ca_pem,
            insecure=cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            proxy=cluster.proxy_url,
            config=extensions.get(_EXEC_EXTENSION),
        )
    return Plugin(
        place=f"{place.file}: {place.what}: exec",
        api_version=exec_config.api_version,
        command=exec_config.command,
        args=tuple(exec_config.args or ()),
        env=tuple((variable.name, variable.value) for variable in exec_config.env or ()),
        folder=place.file.parent.absolute(),
        interactive=interactive,
        install_hint=exec_config.install_hint,
        cluster=info,
    )


def _cluster_info(
    *, server: str, ca_pem: bytes, insecure: bool, server_name: str, proxy: str, config: Any
) -> dict[str, Any]:
    """The server's description for a program (`spec.cluster`); `config` is the cluster's extension
    `client.authentication.k8s.io/exec`."""
    fields = {
        "server": server,
        "tls-server-name": server_name,
        "insecure-skip-tls-verify": insecure,
        "certificate-authority-data": base64.b64encode(ca_pem).decode(),
        "proxy-url": proxy,
        "config": config,
    }
    return {name: value for name, value in fields.items() if value or name == "server"}


def _check_cluster(cluster: Cluster, place: Place) -> None:
    if not _is_url(cluster.server):
        raise place.error(f'server: "{cluster.server}" is not an https:// address')
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        raise place.error("insecure-skip-tls-verify and a certificate-authority exclude each other")
    if cluster.proxy_url and urlsplit(cluster.proxy_url).scheme not in ("http", "https"):
        raise place.error(f'proxy-url: "{cluster.proxy_url}" is not an http:// or https:// proxy')


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _check_user(user: User, place: Place) -> None:
    instead = "use a token, a tokenFile, a client certificate or exec instead"
    if user.auth_provider is not None:
        raise place.error(f"auth-provider: log-in by a provider is not supported; {instead}")
    if user.username:
        raise place.error(f"username: log-in by password is not supported; {instead}")
    if user.as_:
        raise place.error("as: impersonation is not supported; leave it out")


def _pem(place: Place, name: str, path: str, data: str) -> bytes:
    """The contents of the file, or of the field with `-data`, which comes first as in kubectl."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise place.error(f"{name}-data is not base64: {error}") from None
    return _file(place, name, path) if path else b""


def _file(place: Place, name: str, path: str) -> bytes:
    base = place.file if place.file.is_dir() else place.file.parent
    try:
        return (base / path).read_bytes()
    except OSError as error:
        raise place.error(f"{name}: cannot read {base / path}: {error.strerror}") from None
