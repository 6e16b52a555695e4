"""Printer columns of the built-in kinds, as `kubectl get` shows them.

Source: what kubectl prints of a Kubernetes cluster (Kubernetes `pkg/printers/internalversion`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.core_strategies import OLD_NAMES
from certwright.kube.apiserver.model.definitions import Column
from certwright.kube.apiserver.representations import tables
from certwright.kube.apiserver.representations.tables import AGE, NAME, name_cell

_NONE = "<none>"
_UNSET = "<unset>"
_SHOWN = 3  # of a list that could be long


def _column(name: str, cell: Callable[[Json], Any], description: str, **more: Any) -> Column:
    return Column(name, more.pop("type", "string"), lambda obj, _: cell(obj), description=description, **more)


def _at(path: str, empty: Any = "") -> Callable[[Json], Any]:
    """The field at a path; `empty` where it has no value."""
    *parents, name = path.split(".")

    def cell(obj: Json) -> Any:
        # The bookmark of a watch is an empty object.
        for parent in parents:
            obj = obj.get(parent) or {}
        return obj.get(name) or empty

    return cell


def _number_of(field: str) -> Callable[[Json], int]:
    """The number of items of a list or map."""
    items = _at(field, ())
    return lambda obj: len(items(obj))


def _spec(obj: Json) -> Json:
    return obj.get("spec") or {}


def _joined(items: list[str]) -> str:
    return ",".join(items) or _NONE


def _first_few(items: list[str]) -> str:
    shown = ",".join(items[:_SHOWN])
    return f"{shown} + {len(items) - _SHOWN} more..." if len(items) > _SHOWN else shown


# --- Namespace, Secret, ConfigMap, ServiceAccount, Lease, CustomResourceDefinition ------------------------


def _data_count(obj: Json) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def created_at(obj: Json, _: float) -> Any:
    """When the object was created, in UTC."""
    stamp = obj["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if stamp else ""


NAMESPACE = (NAME, _column("Status", _at("status.phase"), "Active, or Terminating."), AGE)
SECRET = (
    NAME,
    _column("Type", _at("type"), "What kind of data it holds."),
    _column("Data", _data_count, "How many values it holds."),
    AGE,
)
CONFIG_MAP = (NAME, _column("Data", _data_count, "How many values it holds."), AGE)
SERVICE_ACCOUNT = (
    NAME,
    _column("Secrets", _number_of("secrets"), "How many Secrets the account may use."),
    AGE,
)
LEASE = (NAME, _column("Holder", _at("spec.holderIdentity"), "Identity of the holder."), AGE)
CREATED = (NAME, Column("Created At", "date", created_at, description="When the object was created."))
CUSTOM_RESOURCE_DEFINITION = (
    NAME,
    Column("Created At", "date", created_at, description="When the definition was created."),
)

# --- Event ------------------------------------------------------------------------------------------------


def _first_seen(obj: Json, now: float) -> Any:
    return tables.age(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _last_seen(obj: Json, now: float) -> Any:
    series = obj.get("series")
    if series:
        return tables.age(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return tables.age(last, now) if last else _first_seen(obj, now)


def _target(obj: Json) -> str:
    about = obj.get("involvedObject") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _source(obj: Json) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


EVENT = (
    Column("Last Seen", "string", _last_seen, description="How long ago it happened last."),
    _column("Type", _at("type"), "Normal or Warning."),
    _column("Reason", _at("reason"), "Why, in one word."),
    _column("Object", _target, "The object that it is about."),
    _column("Subobject", _at("involvedObject.fieldPath"), "The part of the object.", priority=1),
    _column("Source", _source, "The component that reports it.", priority=1),
    _column("Message", lambda o: str(o.get("message", "")).strip(), "What happened."),
    Column("First Seen", "string", _first_seen, priority=1, description="How long ago it happened first."),
    _column(
        "Count", lambda o: (o.get("series") or o).get("count") or 1, "How often it happened.", priority=1
    ),
    Column("Name", "string", name_cell, priority=1, description="The event's name."),
)


def _of_new(column: Column) -> Column:
    # Events of events.k8s.io have other names for the same fields.
    def cell(obj: Json, now: float) -> Any:
        return column.cell({OLD_NAMES.get(name, name): value for name, value in obj.items()}, now)

    return replace(column, cell=cell)


NEW_EVENT = tuple(_of_new(column) for column in EVENT)

# --- Service, Endpoints, EndpointSlice --------------------------------------------------------------------


def _ingress_addresses(obj: Json) -> list[str]:
    balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    return [entry.get("ip") or entry.get("hostname", "") for entry in balancer.get("ingress") or ()]


def _external_ip(obj: Json) -> str:
    spec = _spec(obj)
    given = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            addresses = [*_ingress_addresses(obj), *given]
            return ",".join(addresses) or "<pending>"
        case _:
            return _joined(given)


def _port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _selector(obj: Json) -> str:
    return _joined([f"{key}={value}" for key, value in sorted((_spec(obj).get("selector") or {}).items())])


SERVICE = (
    NAME,
    _column("Type", _at("spec.type"), "How the service is reached."),
    _column("Cluster-IP", _at("spec.clusterIP", _NONE), "Its address inside."),
    _column("External-IP", _external_ip, "Its addresses outside."),
    _column("Port(s)", lambda o: _joined(list(map(_port, _spec(o).get("ports") or ()))), "Its ports."),
    AGE,
    _column("Selector", _selector, "Which pods it leads to.", priority=1),
)


def _endpoints(obj: Json) -> str:
    endpoints: list[str] = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or [None]
        for address in subset.get("addresses") or ():
            endpoints += [
                address["ip"] if port is None else f"{address['ip']}:{port['port']}" for port in ports
            ]
    return _first_few(endpoints) or _NONE


ENDPOINTS = (NAME, _column("Endpoints", _endpoints, "The addresses that are ready."), AGE)


def _slice_ports(obj: Json) -> str:
    ports = obj.get("ports")
    if not ports:
        return _UNSET
    return _first_few(["*" if port.get("port") is None else str(port["port"]) for port in ports])


def _slice_addresses(obj: Json) -> str:
    addresses = [address for point in obj.get("endpoints") or () for address in point.get("addresses") or ()]
    return _first_few(addresses) or _UNSET


ENDPOINT_SLICE = (
    NAME,
    _column("AddressType", _at("addressType"), "What kind of addresses it holds."),
    _column("Ports", _slice_ports, "The ports of each endpoint."),
    _column("Endpoints", _slice_addresses, "The addresses."),
    AGE,
)

# --- Ingress ----------------------------------------------------------------------------------------------


def _hosts(obj: Json) -> str:
    hosts = [rule["host"] for rule in _spec(obj).get("rules") or () if rule.get("host")]
    return _first_few(hosts) or "*"


INGRESS = (
    NAME,
    _column("Class", _at("spec.ingressClassName", _NONE), "Name of the controller."),
    _column("Hosts", _hosts, "The hosts that it is for."),
    _column("Address", lambda o: ",".join(_ingress_addresses(o)), "Where it is reached."),
    _column("Ports", lambda o: "80, 443" if _spec(o).get("tls") else "80", "Its ports."),
    AGE,
)


def _parameters(obj: Json) -> str:
    given = _spec(obj).get("parameters")
    if not given:
        return _NONE
    group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
    return f"{given['kind']}{group}/{given['name']}"


INGRESS_CLASS = (
    NAME,
    _column("Controller", _at("spec.controller"), "Who serves the class."),
    _column("Parameters", _parameters, "An object with more settings."),
    AGE,
)

# --- Pod --------------------------------------------------------------------------------------------------


def _statuses(obj: Json) -> list[Json]:
    return (obj.get("status") or {}).get("containerStatuses") or []


def _ready(obj: Json) -> str:
    ready = sum(1 for status in _statuses(obj) if status.get("ready"))
    return f"{ready}/{len(_spec(obj).get('containers') or ())}"


def _restarts(obj: Json) -> str:
    return str(sum(status.get("restartCount", 0) for status in _statuses(obj)))


def _pod_status(obj: Json) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    reason = status.get("reason") or status.get("phase", "")
    for container in reversed(_statuses(obj)):
        state = container.get("state") or {}
        inner = (state.get("waiting") or {}).get("reason") or (state.get("terminated") or {}).get("reason")
        reason = inner or reason
    return str(reason)


def _gates(obj: Json) -> str:
    gates = [gate["conditionType"] for gate in _spec(obj).get("readinessGates") or ()]
    if not gates:
        return _NONE
    conditions = (obj.get("status") or {}).get("conditions") or ()
    met = {condition["type"] for condition in conditions if condition.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate in met)}/{len(gates)}"


POD = (
    NAME,
    _column("Ready", _ready, "How many containers are ready."),
    _column("Status", _pod_status, "What the pod is doing."),
    _column("Restarts", _restarts, "How often containers were started again."),
    AGE,
    _column("IP", _at("status.podIP", _NONE), "Its address.", priority=1),
    _column("Node", _at("spec.nodeName", _NONE), "Where it runs.", priority=1),
    _column("Nominated Node", _at("status.nominatedNodeName", _NONE), "Where it may run.", priority=1),
    _column("Readiness Gates", _gates, "How many of its gates are open.", priority=1),
)

# --- limits -----------------------------------------------------------------------------------------------


def _quota(obj: Json, *, limits: bool) -> str:
    status = obj.get("status") or {}
    used = status.get("used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard}"
        for name, hard in sorted((status.get("hard") or {}).items())
        if name.startswith("limits") is limits
    )


RESOURCE_QUOTA = (
    NAME,
    _column("Request", lambda o: _quota(o, limits=False), "What is requested, of what may be."),
    _column("Limit", lambda o: _quota(o, limits=True), "What is limited, of what may be."),
    AGE,
)

# --- roles ------------------------------------------------------------------------------------------------


def _subjects(kind: str) -> Callable[[Json], str]:
    def cell(obj: Json) -> str:
        subjects = [subject for subject in obj.get("subjects") or () if subject.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{subject.get('namespace', '')}/{subject['name']}" for subject in subjects)
        return ", ".join(subject["name"] for subject in subjects)

    return cell


def _role(obj: Json) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


BINDING = (
    NAME,
    _column("Role", _role, "What is granted."),
    AGE,
    _column("Users", _subjects("User"), "To which users.", priority=1),
    _column("Groups", _subjects("Group"), "To which groups.", priority=1),
    _column("ServiceAccounts", _subjects("ServiceAccount"), "To which accounts.", priority=1),
)

# --- signing requests -------------------------------------------------------------------------------------


def _requested(obj: Json) -> str:
    seconds = _spec(obj).get("expirationSeconds")
    return tables.human_duration(seconds) if seconds else _NONE


def _condition(obj: Json) -> str:
    status = obj.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    shown = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    shown += ",Failed" if "Failed" in types else ""
    return shown + (",Issued" if status.get("certificate") else "")


SIGNING_REQUEST = (
    NAME,
    AGE,
    _column("SignerName", _at("spec.signerName"), "Name of the signer."),
    _column("Requestor", _at("spec.username"), "The requester."),
    _column("RequestedDuration", _requested, "For how long."),
    _column("Condition", _condition, "How far it is."),
)

# --- workloads --------------------------------------------------------------------------------------------


def _ready_of(obj: Json) -> str:
    return f"{(obj.get('status') or {}).get('readyReplicas', 0)}/{_spec(obj).get('replicas', 0)}"


DEPLOYMENT = (
    NAME,
    _column("Ready", _ready_of, "How many replicas are ready, of how many."),
    _column("Up-to-date", _at("status.updatedReplicas", 0), "How many have the current template."),
    _column("Available", _at("status.availableReplicas", 0), "How many are available."),
    AGE,
)
DAEMON_SET = (
    NAME,
    _column("Desired", _at("status.desiredNumberScheduled", 0), "How many there should be.", type="integer"),
    _column("Current", _at("status.currentNumberScheduled", 0), "How many there are.", type="integer"),
    _column("Ready", _at("status.numberReady", 0), "How many are ready.", type="integer"),
    _column("Up-to-date", _at("status.updatedNumberScheduled", 0), "How many are current.", type="integer"),
    _column("Available", _at("status.numberAvailable", 0), "How many are available.", type="integer"),
    AGE,
)

# --- registration -----------------------------------------------------------------------------------------

WEBHOOKS = (
    NAME,
    _column("Webhooks", _number_of("webhooks"), "How many webhooks it names.", type="integer"),
    AGE,
)


def _param_kind(obj: Json) -> str:
    kind = _spec(obj).get("paramKind") or {}
    return f"{kind['apiVersion']}/{kind['kind']}" if kind else _UNSET


def _param_ref(obj: Json) -> str:
    ref = _spec(obj).get("paramRef")
    if not ref:
        return _UNSET
    namespace, name = ref.get("namespace") or "", ref.get("name") or "*"
    return f"{namespace}/{name}" if namespace else name


POLICY = (
    NAME,
    _column("Validations", _number_of("spec.validations"), "How many demands.", type="integer"),
    _column("ParamKind", _param_kind, "The kind of its parameters."),
    AGE,
)
POLICY_BINDING = (
    NAME,
    _column("PolicyName", _at("spec.policyName"), "The policy that it enforces."),
    _column("ParamRef", _param_ref, "The parameters."),
    AGE,
)


def _service(obj: Json) -> str:
    service = _spec(obj).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: Json) -> str:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            status = condition.get("status", "Unknown")
            return status if status == "True" else f"{status} ({condition.get('reason', '')})"
    return "Unknown"


API_SERVICE = (
    NAME,
    _column("Service", _service, "The Service that serves the group."),
    _column("Available", _available, "Whether the service is available."),
    AGE,
)
