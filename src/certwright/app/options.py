"""Settings of a process, `--feature-gates`, the packages that `--dns01-lexicon` and `--dns01-plugin` need,
and the error for a failed start.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from certwright.acme.solvers.dns01.child import plugin
from certwright.controllers import settings as of_controllers
from certwright.controllers.acme.listeners import AcmeSettings
from certwright.controllers.deliveries.permissions import DeliveryOptions
from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.apiserver.auth.tokens import DEFAULT_ISSUER
from certwright.kube.apiserver.background.expiry import DEFAULT_TTL
from certwright.kube.apiserver.base import features
from certwright.kube.apiserver.base import features as of_server
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.kube.apiserver.http.fairness import InFlight
from certwright.resources.lexicon import FORBIDDEN_PROVIDERS
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES
from certwright.resources.operator_policy import OperatorPolicy


class StartError(Exception):
    """The program cannot start; the text is one sentence for the user."""


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """Settings of the controllers; names and meanings as cert-manager's flags.

    `controllers` is the list of `--controllers`; empty means none. `feature_gates` is `A=true,B=false`.
    `api_server_ca` is the CA of the API server as PEM; empty: unknown. `notifications` is the operator's file
    of destinations.
    """

    controllers: str = "*"
    cluster_resource_namespace: str = "kube-system"
    namespace: str | None = None
    backoff_minimum: timedelta = timedelta(hours=1)
    backoff_maximum: timedelta = timedelta(hours=32)
    issuer_attempts_per_hour: int = 12
    certificate_owner_references: bool = False
    copied_annotation_prefixes: tuple[str, ...] = COPIED_ANNOTATION_PREFIXES
    feature_gates: str = ""
    api_server_ca: bytes = b""
    notifications: Path | None = None
    acme: AcmeSettings = field(default_factory=AcmeSettings)
    shims: ShimOptions = field(default_factory=ShimOptions)
    deliveries: DeliveryOptions = field(default_factory=DeliveryOptions)


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """Connection settings of etcd; meanings as kube-apiserver's flags, and `user` as etcdctl's.

    `owner`: the installation that the prefix belongs to; empty: not named. `ca_file` None: the CAs that the
    system trusts. `compaction_interval` zero: no compaction by this server.
    `quota_backend_bytes`: etcd's quota, if etcd does not report it (before 3.6). `upgrade_format`: compress
    rows in a store of an earlier version, which earlier versions cannot read afterwards.
    """

    prefix: str = "/certwright"
    owner: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    compaction_interval: timedelta = timedelta(minutes=5)
    quota_backend_bytes: int = 2 << 30
    upgrade_format: bool = False


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Settings of the daemon. `store` is a path, `memory`, `etcd://HOST:PORT[,HOST:PORT…]` (`etcds://`
    with TLS), or None for a file in `data_dir`.

    `tls_sans` are further names and addresses of the serving certificate.

    `token_auth_file`, `client_ca_file` (None: the daemon's own CA), `anonymous_auth` and
    `service_account_issuer` mean what kube-apiserver's flags of these names mean, and so does `feature_gates`
    (`A=true,B=false`), `event_ttl` (zero: for ever) and `in_flight`.

    With `leader_elect` its controllers run while they hold the Lease in `leader_election_namespace`; False:
    always.

    `encrypt_secrets`: whether Secrets are encrypted at rest; `encryption_key_file` None: the key in
    $CERTWRIGHT_ENCRYPTION_KEY, else the file in `data_dir`, created if missing.

    `dashboard`: the pages at /ui/, `on`, `read-only` or `off`; `dashboard_scan` and
    `dashboard_files`: hosts and files whose certificates it shows beside.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8443
    tls_sans: tuple[str, ...] = ()
    store: str | None = None
    etcd: EtcdOptions = field(default_factory=EtcdOptions)
    encrypt_secrets: bool = True
    encryption_key_file: Path | None = None
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    leader_elect: bool = True
    leader_election_namespace: str = "kube-system"
    token_auth_file: Path | None = None
    client_ca_file: Path | None = None
    anonymous_auth: bool = False
    event_ttl: timedelta = DEFAULT_TTL
    in_flight: InFlight = field(default_factory=InFlight)
    feature_gates: str = ""
    service_account_issuer: str = DEFAULT_ISSUER
    dashboard: str = "on"
    dashboard_scan: tuple[str, ...] = ()
    dashboard_files: tuple[str, ...] = ()


def server_gates(text: str) -> FeatureGates:
    """The API server's gates. Raises `StartError` for a gate that neither it nor the controllers know."""
    return FeatureGates({name: on for name, on in _parse(text).items() if name in of_server.DEFAULTS})


def controller_gates(text: str) -> dict[str, bool]:
    """All gates of the controllers. Raises `StartError` for a gate that neither side knows."""
    requested = _parse(text)
    return {name: requested.get(name, default) for name, default in of_controllers.FEATURE_GATES.items()}


def operator_policy(options: ControllerOptions) -> OperatorPolicy:
    """The policy of the flags, with the gates that decide what objects may ask for. Raises `StartError`."""
    gates_of = controller_gates(options.feature_gates)
    return replace(options.acme.policy, post_quantum=gates_of[of_controllers.POST_QUANTUM])


def _parse(text: str) -> dict[str, bool]:
    try:
        return features.parse(
            text, of_server.DEFAULTS.keys() | of_controllers.FEATURE_GATES.keys(), of_server.ALIASES
        )
    except ValueError as error:
        raise StartError(f"--feature-gates: {error}") from error


def lexicon_problem(names: tuple[str, ...]) -> str:
    """Why these providers of dns-lexicon cannot be allowed; empty: they can."""
    for name in names:
        if name in FORBIDDEN_PROVIDERS:
            return f"`{name}` cannot be used: {FORBIDDEN_PROVIDERS[name]}"
    known = plugin.lexicon_providers()
    if not known:
        return "dns-lexicon is not installed; run `pip install 'certwright[lexicon]'`"
    unknown = [name for name in names if name not in known]
    return f"dns-lexicon has no provider `{unknown[0]}`; `lexicon --help` lists them" if unknown else ""


def plugin_problem(names: tuple[str, ...]) -> str:
    """Why these plug-ins cannot be allowed; empty: they can."""
    known = plugin.plugins()
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    shown = f" (installed: {', '.join(sorted(known))})" if known else ""
    return f"no installed package provides the plug-in `{unknown[0]}`{shown}; install its package"
