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


def _phase(obj: Json, _: float) -> Any:
    return (obj.get("status") or {}).get("phase", "")


def _secret_type(obj: Json, _: float) -> Any:
    return obj.get("type", "")


def _data_count(obj: Json, _: float) -> Any:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _secret_count(obj: Json, _: float) -> Any:
    return len(obj.get("secrets") or ())


def _holder(obj: Json, _: float) -> Any:
    return (obj.get("spec") or {}).get("holderIdentity") or ""


def created_at(obj: Json, _: float) -> Any:
    """When the object was created, in UTC."""
    stamp = obj["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if stamp else ""


def _first_seen(obj: Json, now: float) -> Any:
    return tables.age(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _last_seen(obj: Json, now: float) -> Any:
    series = obj.get("series")
    if series:
        return tables.age(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return tables.age(last, now) if last else _first_seen(obj, now)


def _event_count(obj: Json, _: float) -> Any:
    return (obj.get("series") or obj).get("count") or 1


def _target(obj: Json, _: float) -> Any:
    about = obj.get("involvedObject") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _target_part(obj: Json, _: float) -> Any:
    return (obj.get("involvedObject") or {}).get("fieldPath", "")


def _source(obj: Json, _: float) -> Any:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _message(obj: Json, _: float) -> Any:
    return str(obj.get("message", "")).strip()


NAMESPACE = (NAME, Column("Status", "string", _phase, description="Active, or Terminating."), AGE)
SECRET = (
    NAME,
    Column("Type", "string", _secret_type, description="What kind of data it holds."),
    Column("Data", "string", _data_count, description="How many values it holds."),
    AGE,
)
CONFIG_MAP = (NAME, Column("Data", "string", _data_count, description="How many values it holds."), AGE)
SERVICE_ACCOUNT = (
    NAME,
    Column("Secrets", "string", _secret_count, description="How many Secrets the account may use."),
    AGE,
)
LEASE = (NAME, Column("Holder", "string", _holder, description="Identity of the holder."), AGE)
CUSTOM_RESOURCE_DEFINITION = (
    NAME,
    Column("Created At", "date", created_at, description="When the definition was created."),
)
EVENT = (
    Column("Last Seen", "string", _last_seen, description="How long ago it happened last."),
    Column("Type", "string", lambda obj, _: obj.get("type", ""), description="Normal or Warning."),
    Column("Reason", "string", lambda obj, _: obj.get("reason", ""), description="Why, in one word."),
    Column("Object", "string", _target, description="The object that it is about."),
    Column("Subobject", "string", _target_part, priority=1, description="The part of the object."),
    Column("Source", "string", _source, priority=1, description="The component that reports it."),
    Column("Message", "string", _message, description="What happened."),
    Column("First Seen", "string", _first_seen, priority=1, description="How long ago it happened first."),
    Column("Count", "string", _event_count, priority=1, description="How often it happened."),
    Column("Name", "string", name_cell, priority=1, description="The event's name."),
)


def _of_new(column: Column) -> Column:
    # Events of events.k8s.io have other names for the same fields.
    def cell(obj: Json, now: float) -> Any:
        return column.cell({OLD_NAMES.get(name, name): value for name, value in obj.items()}, now)

    return replace(column, cell=cell)


NEW_EVENT = tuple(_of_new(column) for column in EVENT)


_NONE = "<none>"
_UNSET = "<unset>"
_SHOWN = 3  # of a list that could be long


def _column(name: str, cell: Callable[[Json], Any], description: str, **more: Any) -> Column:
    return Column(name, more.pop("type", "string"), lambda obj, _: cell(obj), description=description, **more)


def _spec(obj: Json) -> Json:
    # The bookmark of a watch is an empty object.
    return obj.get("spec") or {}


def _joined(items: list[str]) -> str:
    return ",".join(items) or _NONE


def _first_few(items: list[str], separator: str = ",") -> str:
    if len(items) > _SHOWN:
        return f"{separator.join(items[:_SHOWN])} + {len(items) - _SHOWN} more..."
    return separator.join(items)


def _labels(labels: Json | None) -> str:
    return _joined([f"{key}={value}" for key, value in sorted((labels or {}).items())])


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


def _service_port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


SERVICE = (
    NAME,
    _column("Type", lambda o: _spec(o).get("type", ""), "How the service is reached."),
    _column("Cluster-IP", lambda o: _spec(o).get("clusterIP") or _NONE, "Its address inside."),
    _column("External-IP", _external_ip, "Its addresses outside."),
    _column(
        "Port(s)", lambda o: _joined([_service_port(p) for p in _spec(o).get("ports") or ()]), "Its ports."
    ),
    AGE,
    _column("Selector", lambda o: _labels(_spec(o).get("selector")), "Which pods it leads to.", priority=1),
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
    _column("AddressType", lambda o: o.get("addressType", ""), "What kind of addresses it holds."),
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
    _column("Class", lambda o: _spec(o).get("ingressClassName") or _NONE, "Name of the controller."),
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
    _column("Controller", lambda o: _spec(o).get("controller", ""), "Who serves the class."),
    _column("Parameters", _parameters, "An object with more settings."),
    AGE,
)

# --- Pod --------------------------------------------------------------------------------------------------


def _statuses(obj: Json) -> list[Json]:
    return (obj.get("status") or {}).get("containerStatuses") or []


def _ready(obj: Json) -> str:
    ready = sum(1 for status in _statuses(obj) if status.get("ready"))
    return f"{ready}/{len(_spec(obj).get('containers') or ())}"


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


def _pod_text(*path: str) -> Callable[[Json], str]:
    part, name = path
    return lambda obj: (obj.get(part) or {}).get(name) or _NONE


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
    _column(
        "Restarts",
        lambda o: str(sum(status.get("restartCount", 0) for status in _statuses(o))),
        "How often containers were started again.",
    ),
    AGE,
    _column("IP", _pod_text("status", "podIP"), "Its address.", priority=1),
    _column("Node", _pod_text("spec", "nodeName"), "Where it runs.", priority=1),
    _column("Nominated Node", _pod_text("status", "nominatedNodeName"), "Where it may run.", priority=1),
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


CREATED = (NAME, Column("Created At", "date", created_at, description="When the object was created."))
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
    _column("SignerName", lambda o: _spec(o).get("signerName", ""), "Name of the signer."),
    _column("Requestor", lambda o: _spec(o).get("username", ""), "The requester."),
    _column("RequestedDuration", _requested, "For how long."),
    _column("Condition", _condition, "How far it is."),
)

# --- workloads --------------------------------------------------------------------------------------------


def _count(name: str) -> Callable[[Json], int]:
    return lambda obj: (obj.get("status") or {}).get(name, 0)


def _ready_of(obj: Json) -> str:
    return f"{_count('readyReplicas')(obj)}/{_spec(obj).get('replicas', 0)}"


DEPLOYMENT = (
    NAME,
    _column("Ready", _ready_of, "How many replicas are ready, of how many."),
    _column("Up-to-date", _count("updatedReplicas"), "How many have the current template."),
    _column("Available", _count("availableReplicas"), "How many are available."),
    AGE,
)
DAEMON_SET = (
    NAME,
    _column("Desired", _count("desiredNumberScheduled"), "How many there should be.", type="integer"),
    _column("Current", _count("currentNumberScheduled"), "How many there are.", type="integer"),
    _column("Ready", _count("numberReady"), "How many are ready.", type="integer"),
    _column("Up-to-date", _count("updatedNumberScheduled"), "How many are current.", type="integer"),
    _column("Available", _count("numberAvailable"), "How many are available.", type="integer"),
    AGE,
)

# --- registration -----------------------------------------------------------------------------------------

WEBHOOKS = (
    NAME,
    _column(
        "Webhooks", lambda o: len(o.get("webhooks") or ()), "How many webhooks it names.", type="integer"
    ),
    AGE,
)


def _param_kind(obj: Json) -> str:
    kind = _spec(obj).get("paramKind") or {}
    return f"{kind['apiVersion']}/{kind['kind']}" if kind else "<unset>"


def _param_ref(obj: Json) -> str:
    ref = _spec(obj).get("paramRef")
    if not ref:
        return "<unset>"
    namespace, name = ref.get("namespace") or "", ref.get("name") or "*"
    return f"{namespace}/{name}" if namespace else name


POLICY = (
    NAME,
    _column(
        "Validations", lambda o: len(_spec(o).get("validations") or ()), "How many demands.", type="integer"
    ),
    _column("ParamKind", _param_kind, "The kind of its parameters."),
    AGE,
)
POLICY_BINDING = (
    NAME,
    _column("PolicyName", lambda o: _spec(o).get("policyName", ""), "The policy that it enforces."),
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
