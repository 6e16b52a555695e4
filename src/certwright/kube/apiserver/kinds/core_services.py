"""Service, Endpoints, ResourceQuota and Pod: stored as given, with the defaults that clients rely on.

Source: Kubernetes API reference; Kubernetes `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from certwright.kube.api.errors import FieldError, duplicate, invalid, not_supported, required
from certwright.kube.apiserver.model.definitions import Json, Strategy

# --- Service ----------------------------------------------------------------------------------------------

_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_AFFINITY_SECONDS = 10800


def _prepare_service(obj: Json) -> None:
    spec = obj["spec"]
    kind = spec.setdefault("type", "ClusterIP")
    if spec.setdefault("sessionAffinity", "None") == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port["port"]
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _validate_service(new: Json, _: Json | None) -> list[FieldError]:
    spec = new["spec"]
    errors: list[FieldError] = []
    if spec["type"] not in _SERVICE_TYPES:
        errors.append(not_supported("spec.type", spec["type"], _SERVICE_TYPES))
    if spec["sessionAffinity"] not in _AFFINITIES:
        errors.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], _AFFINITIES))
    ports = spec.get("ports", [])
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        errors.append(required("spec.ports"))
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        errors.append(required("spec.externalName"))
    errors += _port_errors(ports)
    return errors


def _port_errors(ports: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            errors.append(required(f"{path}.name"))
        elif name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        errors += port_number_errors(f"{path}.port", port["port"])
        if port["protocol"] not in _PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    return errors


def port_number_errors(path: str, port: int) -> list[FieldError]:
    """The errors of a port number."""
    return [] if 0 < port < 65536 else [invalid(path, port, "must be between 1 and 65535, inclusive")]


def _prepare_new_service(obj: Json) -> None:
    obj["status"] = {"loadBalancer": {}}
    _prepare_service(obj)


SERVICE = Strategy(
    prepare_create=_prepare_new_service,
    prepare_update=lambda new, _: _prepare_service(new),
    validate=_validate_service,
)

# --- Endpoints --------------------------------------------------------------------------------------------


def _prepare_endpoints(obj: Json) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _validate_endpoints(new: Json, _: Json | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, subset in enumerate(new.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for at, port in enumerate(subset.get("ports", ())):
            errors += port_number_errors(f"{path}.ports[{at}].port", port["port"])
    return errors


ENDPOINTS = Strategy(
    prepare_create=_prepare_endpoints,
    prepare_update=lambda new, _: _prepare_endpoints(new),
    validate=_validate_endpoints,
)

# --- ResourceQuota ----------------------------------------------------------------------------------------


def _prepare_new_quota(obj: Json) -> None:
    obj["status"] = {}


RESOURCE_QUOTA = Strategy(prepare_create=_prepare_new_quota)

# --- Pod --------------------------------------------------------------------------------------------------

_POD_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE_DEFAULTS: Json = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644


def _fill(obj: Json, defaults: Json) -> None:
    for name, value in defaults.items():
        obj.setdefault(name, value)


def _containers(spec: Json) -> Iterator[tuple[str, Json]]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            yield f"spec.{name}[{index}]", container


def _prepare_pod(pod: Json) -> None:
    spec = pod["spec"]
    _fill(spec, _POD_DEFAULTS)
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("securityContext", {})
    for _, container in _containers(spec):
        _prepare_container(container)
    for volume in spec.get("volumes", ()):
        for kind in ("secret", "configMap", "downwardAPI", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", _FILE_MODE)


def _prepare_container(container: Json) -> None:
    _fill(container, _CONTAINER_DEFAULTS)
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    latest = tag == "latest" or (not tag and "@" not in image)
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for probe in _PROBES:
        if probe in container:
            _fill(container[probe], _PROBE_DEFAULTS)


def _prepare_new_pod(pod: Json) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _quality(pod["spec"])}
    _prepare_pod(pod)


def _quality(spec: Json) -> str:
    """Whether the pod claims resources for itself (Kubernetes documentation, "Pod Quality of Service")."""
    claims: list[Json] = [container.get("resources", {}) for _, container in _containers(spec)]
    if not any(claim.get("requests") or claim.get("limits") for claim in claims):
        return "BestEffort"
    for claim in claims:
        limits = claim.get("limits", {})
        if not {"cpu", "memory"} <= limits.keys() or claim.get("requests", limits) != limits:
            return "Burstable"
    return "Guaranteed"


def _validate_pod(new: Json, _: Json | None) -> list[FieldError]:
    spec = new["spec"]
    errors: list[FieldError] = [] if spec.get("containers") else [required("spec.containers")]
    names: set[Any] = set()
    for path, container in _containers(spec):
        name = container.get("name")
        if not name:
            errors.append(required(f"{path}.name"))
        elif name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        if not container.get("image"):
            errors.append(required(f"{path}.image"))
    return errors


POD = Strategy(
    prepare_create=_prepare_new_pod,
    prepare_update=lambda new, _: _prepare_pod(new),
    validate=_validate_pod,
)
