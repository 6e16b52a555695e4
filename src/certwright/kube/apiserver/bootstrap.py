"""Bootstrap objects, created or completed at the start: default roles, bindings, the Service `kubernetes`.

Default roles and bindings are Kubernetes' own as far as they make sense here, and those of cert-manager's
chart, which our controllers work with. The server creates missing ones, and restores removed rules and
subjects, unless the object carries the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"`.

Source: Kubernetes documentation, "Using RBAC Authorization", default roles and role bindings; cert-manager
`deploy/charts/cert-manager`, roles; kube-apiserver `pkg/controlplane/controller/kubernetesservice`.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from certwright.kube.api.errors import StorageReadError, from_response
from certwright.kube.apiserver.auth.rbac import GROUP
from certwright.kube.apiserver.background.worker import OwnClient
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from certwright.kube.apiserver.model.objects import decode_json

Change = Callable[[Json], Json | None]
"""Returns the new state of an existing object; None: no change."""
_TRIES = 5


async def ensure_object(
    client: OwnClient, path: str, obj: Json, change: Change, *, agent: str = "kube-apiserver"
) -> None:
    """Create `obj` in the collection at `path`, or change the object of that name. An object whose stored row
    is damaged is deleted and created again.

    `agent`: the field manager. Raises `ApiError` when the server refuses.
    """
    target = f"{path}/{quote(obj['metadata']['name'])}"
    for _ in range(_TRIES):
        answer = await client.send("GET", target)
        if answer.status == 404:
            answer = await client.send("POST", path, obj, agent=agent)
        elif answer.status == 200 and (changed := change(decode_json(answer.body))) is not None:
            answer = await client.send("PUT", target, changed, agent=agent)
        elif answer.status == 500 and isinstance(from_response(answer.status, answer.body), StorageReadError):
            await client.send("DELETE", target)
            continue
        # Another server may start at the same time, and do the same.
        if answer.status != 409:
            break
    if answer.status >= 400:
        raise from_response(answer.status, answer.body)


API_VERSION = f"{GROUP}/v1"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAP = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = f"{GROUP}/aggregate-to-"
_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_CERT_MANAGER = "cert-manager.io"
_ACME = "acme.cert-manager.io"
_GATEWAY = "gateway.networking.k8s.io"
_EXPERIMENTAL_GATEWAY = "gateway.networking.x-k8s.io"
_ACCOUNT = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
_SETS = "certwright.io"
_KINDS = ("issuers", "clusterissuers")
_SET_KINDS = ("issuersets", "clusterissuersets")
_MOST_SHARDS = 64


class Default(NamedTuple):
    """A default object: its resource and its content."""

    plural: str
    obj: Json


def _rule(verbs: str, resources: str, group: str = "", names: tuple[str, ...] = ()) -> Json:
    rule: Json = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    if names:
        rule["resourceNames"] = list(names)
    return rule


def _paths(*urls: str) -> Json:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


def _cluster_role(name: str, rules: list[Json], **labels: str) -> Default:
    """A ClusterRole; `labels` name the roles into which it is aggregated."""
    aggregate_labels = {f"{_AGGREGATE}{part.replace('_', '-')}": value for part, value in labels.items()}
    return Default("clusterroles", _object("ClusterRole", name, aggregate_labels, rules=rules))


def _object(kind: str, name: str, labels: dict[str, str], **content: Any) -> Json:
    own = {**(_BOOTSTRAP if not name.startswith("cert-manager") else {"app": "cert-manager"}), **labels}
    metadata: Json = {"name": name, "labels": own, "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **content}


def _aggregated(name: str, **labels: str) -> Default:
    made = _cluster_role(name, [], **labels).obj
    selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
    # The aggregation controller fills in the rules.
    del made["rules"]
    return Default("clusterroles", {**made, "aggregationRule": {"clusterRoleSelectors": [selector]}})


def _cluster_binding(name: str, *subjects: Json, role: str = "") -> Default:
    ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role or name}
    made = _object("ClusterRoleBinding", name, {}, roleRef=ref, subjects=list(subjects))
    return Default("clusterrolebindings", made)


def _group(name: str) -> Json:
    return {"kind": "Group", "name": name, "apiGroup": GROUP}


def defaults() -> list[Default]:
    """All default objects; the roles first."""
    return [*_kubernetes_roles(), *_users_roles(), *_kubernetes_bindings(), *_cert_manager()]


def _kubernetes_roles() -> list[Default]:
    health = ("/healthz", "/livez", "/readyz")
    version = ("/version", "/version/")
    documents = ("/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*")
    issuer = ("/.well-known/openid-configuration", "/openid/v1/jwks")
    reviews, tokens = "authorization.k8s.io", "authentication.k8s.io"
    everything = [_rule("*", "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    own = "selfsubjectaccessreviews selfsubjectrulesreviews"
    # Aggregated servers read how they know this server's proxy.
    rules = [_rule(_READ, "configmaps", names=("extension-apiserver-authentication",))]
    proxy_trust = _object("Role", "extension-apiserver-authentication-reader", {}, rules=rules)
    proxy_trust["metadata"]["namespace"] = "kube-system"
    return [
        _cluster_role("cluster-admin", everything),
        _cluster_role("system:discovery", [_paths(*health, *version, *documents)]),
        _cluster_role("system:public-info-viewer", [_paths(*health, *version)]),
        _cluster_role("system:monitoring", [_paths(*health, *(f"{h}/*" for h in health), "/metrics")]),
        _cluster_role(
            "system:basic-user",
            [_rule("create", own, reviews), _rule("create", "selfsubjectreviews", tokens)],
        ),
        _cluster_role(
            "system:auth-delegator",
            [_rule("create", "tokenreviews", tokens), _rule("create", "subjectaccessreviews", reviews)],
        ),
        _cluster_role(
            "system:service-account-issuer-discovery", [_paths(*issuer, *(f"{path}/" for path in issuer))]
        ),
        Default("roles", proxy_trust),
    ]


def _users_roles() -> list[Default]:
    """admin, edit and view, and the roles aggregated into them."""
    content = "configmaps persistentvolumeclaims pods services"
    edit = [
        _rule(_READ, "pods/attach pods/exec pods/portforward secrets"),
        _rule("impersonate", "serviceaccounts"),
        # Not `endpoints`: their author leads an ingress controller to addresses of other namespaces.
        # Source: Kubernetes 1.22, CVE-2021-25740.
        _rule(_WRITE, f"{content} secrets serviceaccounts"),
        _rule("create", "serviceaccounts/token"),
        _rule(_WRITE, "deployments deployments/scale daemonsets", "apps"),
        _rule(_WRITE, "ingresses networkpolicies", "networking.k8s.io"),
        _rule(f"{_READ} {_WRITE}", "leases", "coordination.k8s.io"),
    ]
    view = [
        _rule(_READ, f"{content} endpoints pods/status pods/log services/status serviceaccounts"),
        _rule(_READ, "events namespaces namespaces/status"),
        _rule(_READ, "deployments deployments/scale deployments/status daemonsets daemonsets/status", "apps"),
        _rule(_READ, "endpointslices", "discovery.k8s.io"),
        _rule(_READ, "ingresses ingresses/status networkpolicies", "networking.k8s.io"),
    ]
    admin = [
        _rule("create", "localsubjectaccessreviews", "authorization.k8s.io"),
        _rule(f"{_READ} {_WRITE}", "roles rolebindings", GROUP),
    ]
    return [
        _aggregated("admin"),
        _aggregated("edit", admin="true"),
        _aggregated("view", edit="true"),
        _cluster_role("system:aggregate-to-admin", admin, admin="true"),
        _cluster_role("system:aggregate-to-edit", edit, edit="true"),
        _cluster_role("system:aggregate-to-view", view, view="true"),
    ]


def _kubernetes_bindings() -> list[Default]:
    everybody, known = (_group(AUTHENTICATED), _group(UNAUTHENTICATED)), _group(AUTHENTICATED)
    return [
        _cluster_binding("cluster-admin", _group(MASTERS)),
        _cluster_binding("system:discovery", known),
        _cluster_binding("system:basic-user", known),
        _cluster_binding("system:public-info-viewer", *everybody),
        _cluster_binding("system:monitoring", _group("system:monitoring")),
        _cluster_binding("system:service-account-issuer-discovery", _group("system:serviceaccounts")),
    ]


def _cert_manager() -> list[Default]:
    """Roles for users of cert-manager's kinds, and for its controllers."""
    kinds, acme = "certificates certificaterequests issuers", "challenges orders"
    default_objects = [
        _cluster_role(
            "cert-manager-cluster-view",
            [_rule(_READ, "clusterissuers", _CERT_MANAGER), _rule(_READ, "clusterissuersets", _SETS)],
            cluster_reader="true",
        ),
        # In no other role, because the author of a set decides which ClusterIssuers sign the requests
        # approved for it.
        _cluster_role("cert-manager-issuersets-edit", [_rule(_WRITE, "issuersets", _SETS)]),
        # In no other role, because its author decides which files of the operator's machine are replaced.
        _cluster_role("cert-manager-deliveries-edit", [_rule(_WRITE, "deliveries", _SETS)]),
        _cluster_role(
            "cert-manager-view",
            [
                _rule(_READ, kinds, _CERT_MANAGER),
                _rule(_READ, "issuersets deliveries", _SETS),
                _rule(_READ, acme, _ACME),
            ],
            view="true",
            edit="true",
            admin="true",
            cluster_reader="true",
        ),
        _cluster_role(
            "cert-manager-edit",
            [
                _rule(_WRITE, kinds, _CERT_MANAGER),
                _rule("update", "certificates/status", _CERT_MANAGER),
                # Orders and Challenges are the controllers' own: an author of one by hand could use the
                # account and the solvers of an issuer. `patch` and `update` remove a finalizer.
                # Source: cert-manager 1.21, GHSA-8rvj-mm4h-c258.
                _rule("delete deletecollection patch update", "challenges", _ACME),
                _rule("delete deletecollection", "orders", _ACME),
            ],
            edit="true",
            admin="true",
        ),
    ]
    for name, rules in _controller_rules().items():
        full = f"cert-manager-controller-{name}"
        default_objects += [_cluster_role(full, rules), _cluster_binding(full, _ACCOUNT)]
    return [*default_objects, *_leader_election()]


def _controller_rules() -> dict[str, list[Json]]:
    """The role of each of cert-manager's controllers."""
    signers = tuple(f"{kind}.{_CERT_MANAGER}/*" for kind in _KINDS)
    secrets, events = _rule(_READ, "secrets"), _rule("create patch", "events")
    keep = _rule("get list watch create update delete patch", "secrets")
    issuers = _rule(_READ, " ".join(_KINDS), _CERT_MANAGER)
    rules = {
        kind: [
            _rule("update patch", f"{kind} {kind}/status", _CERT_MANAGER),
            _rule(_READ, kind, _CERT_MANAGER),
            keep,
            events,
        ]
        for kind in _KINDS
    }
    rules["certificates"] = [
        _rule(
            "update patch",
            "certificates certificates/status certificaterequests certificaterequests/status",
            _CERT_MANAGER,
        ),
        _rule(_READ, "certificates certificaterequests", _CERT_MANAGER),
        issuers,
        _rule("update", "certificates/finalizers certificaterequests/finalizers", _CERT_MANAGER),
        _rule("create delete get list watch", "orders", _ACME),
        keep,
        events,
    ]
    rules |= _acme_controller_rules(issuers, secrets, events)
    rules["ingress-shim"] = [
        _rule("create update delete", "certificates certificaterequests", _CERT_MANAGER),
        _rule(_READ, "certificates certificaterequests", _CERT_MANAGER),
        _rule(_READ, "ingresses", "networking.k8s.io"),
        _rule("update", "ingresses/finalizers", "networking.k8s.io"),
        _rule(_READ, "gateways httproutes listenersets", _GATEWAY),
        _rule(_READ, "xlistenersets", _EXPERIMENTAL_GATEWAY),
        _rule("update", "gateways/finalizers httproutes/finalizers listenersets/finalizers", _GATEWAY),
        _rule("update", "xlistenersets/finalizers", _EXPERIMENTAL_GATEWAY),
        issuers,
        events,
    ]
    hooks = "validatingwebhookconfigurations mutatingwebhookconfigurations"
    rules["cainjector"] = [
        _rule(_READ, "certificates", _CERT_MANAGER),
        _rule("get list watch patch", hooks, "admissionregistration.k8s.io"),
        _rule("get list watch patch", "apiservices", "apiregistration.k8s.io"),
        _rule("get list watch patch", "customresourcedefinitions", "apiextensions.k8s.io"),
        secrets,
        events,
    ]
    sets = tuple(f"{kind}.{_SETS}/*" for kind in _SET_KINDS)
    rules["approve:cert-manager-io"] = [_rule("approve", "signers", _CERT_MANAGER, (*signers, *sets))]
    rules["issuersets"] = [
        _rule("update patch", " ".join(f"{kind}/status" for kind in _SET_KINDS), _SETS),
        _rule(_READ, " ".join(_SET_KINDS), _SETS),
        issuers,
        events,
    ]
    rules["deliveries"] = [
        _rule("update patch", "deliveries/status", _SETS),
        _rule(_READ, "deliveries", _SETS),
        _rule(_READ, "certificates", _CERT_MANAGER),
        # The roots that processes announce.
        _rule("list", "leases", "coordination.k8s.io"),
        secrets,
        events,
    ]
    rules["certificatesigningrequests"] = [
        # patch: for the annotation with a pickup ID; cert-manager updates the whole object.
        _rule("get list watch update patch", "certificatesigningrequests", "certificates.k8s.io"),
        _rule("update patch", "certificatesigningrequests/status", "certificates.k8s.io"),
        _rule("sign", "signers", "certificates.k8s.io", signers),
        _rule("create", "subjectaccessreviews", "authorization.k8s.io"),
    ]
    return rules


def _acme_controller_rules(issuers: Json, secrets: Json, events: Json) -> dict[str, list[Json]]:
    """The roles of the controllers of Orders and of Challenges."""
    orders = [
        _rule("update patch", "orders orders/status", _ACME),
        _rule(_READ, "orders challenges", _ACME),
        _rule("create delete", "challenges", _ACME),
        _rule("update", "orders/finalizers", _ACME),
        # Ours: the usage of the rate limits of ACME servers.
        _rule("get create patch", "configmaps"),
        issuers,
        secrets,
        events,
    ]
    challenges = [
        _rule("update patch", "challenges challenges/status", _ACME),
        _rule(_READ, "challenges", _ACME),
        _rule("update", "challenges/finalizers", _ACME),
        _rule("get list watch create delete", "pods services"),
        _rule("patch", "services"),
        _rule("list watch create patch", "endpointslices", "discovery.k8s.io"),
        _rule("get list watch create delete update patch", "ingresses", "networking.k8s.io"),
        _rule("get list watch create delete update patch", "httproutes", _GATEWAY),
        issuers,
        secrets,
        events,
    ]
    return {"orders": orders, "challenges": challenges}


def _leader_election() -> list[Default]:
    name, lease = "cert-manager:leaderelection", "cert-manager-controller"
    # A rule cannot match a prefix of a name.
    shards = (f"{lease}-shard-{number}" for number in range(_MOST_SHARDS))
    rules = [
        _rule("get update patch", "leases", "coordination.k8s.io", (lease, *shards)),
        # Ours: replicas with shards watch this one, instead of polling it.
        _rule("watch", "leases", "coordination.k8s.io", (lease,)),
        # Those in which processes announce their roots have any name.
        _rule("create patch delete", "leases", "coordination.k8s.io"),
    ]
    role = _object("Role", name, {}, rules=rules)
    ref = {"apiGroup": GROUP, "kind": "Role", "name": name}
    binding = _object("RoleBinding", name, {}, roleRef=ref, subjects=[_ACCOUNT])
    for obj in (role, binding):
        obj["metadata"]["namespace"] = "kube-system"
    return [Default("roles", role), Default("rolebindings", binding)]


async def ensure_rbac(client: OwnClient) -> None:
    """Create missing roles and bindings. Raises `ApiError` when the server refuses one."""

    async def ensure(default: Default) -> None:
        namespace = default.obj["metadata"].get("namespace")
        inside = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{API_VERSION}/{inside}{default.plural}"
        await ensure_object(client, path, default.obj, partial(_completed, desired=default.obj))

    default_objects = defaults()
    # Concurrently: the store commits concurrent writes together.
    for kind in ("roles", "bindings"):
        some = [default for default in default_objects if default.plural.endswith(kind)]
        await asyncio.gather(*(ensure(default) for default in some))


def _completed(stored: Json, desired: Json) -> Json | None:
    """`stored` with all rules and subjects of `desired`; None where none is missing or updates are
    disabled."""
    if (stored["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    changed = dict(stored)
    for part in ("rules", "subjects"):
        existing = stored.get(part) or []
        known = [_without_empty(item) for item in existing]
        if missing := [item for item in desired.get(part, ()) if _without_empty(item) not in known]:
            changed[part] = [*existing, *missing]
    return changed if changed != stored else None


def _without_empty(item: Json) -> Json:
    """A rule or a subject without its empty members."""
    return {name: value for name, value in item.items() if value}


async def publish_service(client: OwnClient, *, host: str, port: int) -> None:
    """Create or update the Service `kubernetes`, by which programs in a cluster find the API server, and its
    Endpoints and EndpointSlice.

    `host`: the address that the server listens on. Endpoints of an address that other machines cannot
    reach are not published. Raises `ApiError`.
    """

    async def ensure(path: str, labels: dict[str, str], **content: Any) -> None:
        desired = {"metadata": {"name": "kubernetes", "labels": labels}, **content}
        await ensure_object(client, path, desired, lambda stored: {**stored, **content})

    core, slices = "/api/v1/namespaces/default", "/apis/discovery.k8s.io/v1/namespaces/default"
    service_ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    await ensure(
        f"{core}/services",
        {"component": "apiserver", "provider": "kubernetes"},
        spec={"type": "ClusterIP", "sessionAffinity": "None", "ports": service_ports},
    )
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if address.is_loopback or address.is_unspecified or address.is_link_local:
        return
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    await ensure(
        f"{core}/endpoints",
        {"endpointslice.kubernetes.io/skip-mirror": "true"},
        subsets=[{"addresses": [{"ip": str(address)}], "ports": ports}],
    )
    await ensure(
        f"{slices}/endpointslices",
        {"kubernetes.io/service-name": "kubernetes"},
        addressType=f"IPv{address.version}",
        endpoints=[{"addresses": [str(address)], "conditions": {"ready": True}}],
        ports=ports,
    )
