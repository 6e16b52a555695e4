"""Service, Endpoints, ResourceQuota, Pod, Deployment and DaemonSet: stored as given, with clients' defaults.

Nothing here runs them.

Source: Kubernetes API reference; Kubernetes `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation`,
`pkg/apis/apps/validation`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from certwright.kube.api.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Strategy

# --- Service ----------------------------------------------------------------------------------------------

_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
"""Protocols of ports."""
_AFFINITIES = ("ClientIP", "None")
_AFFINITY_SECONDS = 10800


def _default_service(obj: Json) -> None:
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


def _prepare_service_update(new: Json, old: Json) -> None:
    # A client that omits the address means the stored one.
    if "ExternalName" not in (new["spec"].get("type"), old["spec"]["type"]):
        for name in ("clusterIP", "clusterIPs"):
            if not new["spec"].get(name) and name in old["spec"]:
                new["spec"][name] = old["spec"][name]


def _addresses(spec: Json) -> list[str]:
    first = spec.get("clusterIP")
    return spec.get("clusterIPs") or ([first] if first else [])


def _changed_addresses(new: Json, old: Json) -> list[FieldError]:
    """The errors of changed cluster IPs; None, which makes a Service headless, counts as a value."""
    if "ExternalName" in (new["type"], old["type"]):
        return []
    return [
        invalid(f"spec.clusterIPs[{index}]", _addresses(new), "may not change once set")
        for index, (before, after) in enumerate(zip(_addresses(old), _addresses(new), strict=False))
        if before != after
    ]


def _validate_service(new: Json, old: Json | None) -> list[FieldError]:
    spec = new["spec"]
    if old is not None and spec == old["spec"]:
        return []  # it may be older than these rules
    errors: list[FieldError] = [] if old is None else _changed_addresses(spec, old["spec"])
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
    if old is None and spec["type"] == "ClusterIP":
        errors += [
            forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for index, port in enumerate(ports)
            if port.get("nodePort")
        ]
    return errors


def _port_errors(ports: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    used: set[tuple[str, str, int]] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            errors.append(required(f"{path}.name"))
        elif name in names:
            errors.append(duplicate(f"{path}.name", name))
        elif name and (text := object_names.dns_label(name)):
            errors.append(invalid(f"{path}.name", name, text))
        names.add(name)
        errors += port_number_errors(f"{path}.port", port["port"])
        if port["protocol"] not in PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS))
        target = port["targetPort"]
        if type(target) is int:
            errors += port_number_errors(f"{path}.targetPort", target)
        else:
            errors += [invalid(f"{path}.targetPort", target, text) for text in _port_name_problems(target)]
        for field, where in (("nodePort", f"{path}.nodePort"), ("port", path)):
            number = port.get(field, 0)
            if not number:
                continue
            if (field, port["protocol"], number) in used:
                shown = number if field == "nodePort" else {"protocol": port["protocol"], "port": number}
                errors.append(duplicate(where, shown))
            used.add((field, port["protocol"], number))
    return errors


_MAX_PORT_NAME = 15


def _port_name_problems(name: str) -> Iterator[str]:
    """The errors of the name of a container's port (RFC 6335 §5.1)."""
    if len(name) > _MAX_PORT_NAME:
        yield f"must be no more than {_MAX_PORT_NAME} characters"
    if not re.fullmatch("[-a-z0-9]+", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def port_number_errors(path: str, port: int) -> list[FieldError]:
    """The errors of a port number."""
    return [] if 0 < port < 65536 else [invalid(path, port, "must be between 1 and 65535, inclusive")]


def endpoint_address_errors(path: str, text: str, *, version: str = "") -> list[FieldError]:
    """The errors of an address that requests are sent to. `version`: IPv4, IPv6; empty: any.

    Loopback addresses are allowed, unlike in Kubernetes: on one host without a cluster, the programs that
    Ingresses lead to, certwright's HTTP-01 listener among them, listen there.
    """
    # Go's parser accepts leading zeros.
    plain = re.sub(r"\b0+(?=\d)", "", text) if ":" not in text else text
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        address = None
    if address is None or "%" in text:
        return [invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    errors: list[FieldError] = []
    if version and version != f"IPv{address.version}":
        errors.append(invalid(path.rpartition("[")[0], text, f"must be an {version} address"))
    if address.is_unspecified:
        errors.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if any(address.version == range.version and address in range for range in _LINK_LOCAL_MULTICAST):
        ranges = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errors.append(invalid(path, text, ranges))
    return errors


_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


SERVICE = Strategy(
    prepare_create=lambda obj: obj.update(status={"loadBalancer": {}}),
    defaults=_default_service,
    prepare_update=_prepare_service_update,
    validate=_validate_service,
)

# --- Endpoints --------------------------------------------------------------------------------------------


def _default_endpoints(obj: Json) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _validate_endpoints(new: Json, old: Json | None) -> list[FieldError]:
    errors: list[FieldError] = []
    if old is not None and new.get("subsets") == old.get("subsets"):
        return errors  # they may be older than these rules
    for index, subset in enumerate(new.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(name, ())):
                errors += endpoint_address_errors(f"{path}.{name}[{at}].ip", address["ip"])
                hostname = address.get("hostname", "")
                if hostname and (text := object_names.dns_label(hostname)):
                    errors.append(invalid(f"{path}.{name}[{at}].hostname", hostname, text))
        ports = subset.get("ports", ())
        for at, port in enumerate(ports):
            where, name = f"{path}.ports[{at}]", port.get("name", "")
            if not name and len(ports) > 1:
                errors.append(required(f"{where}.name"))
            elif name and (text := object_names.dns_label(name)):
                errors.append(invalid(f"{where}.name", name, text))
            errors += port_number_errors(f"{where}.port", port["port"])
            if port["protocol"] not in PROTOCOLS:
                errors.append(not_supported(f"{where}.protocol", port["protocol"], PROTOCOLS))
    return errors


ENDPOINTS = Strategy(defaults=_default_endpoints, validate=_validate_endpoints)

# --- ResourceQuota ----------------------------------------------------------------------------------------


RESOURCE_QUOTA = Strategy(prepare_create=lambda obj: obj.update(status={}))

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


def _default_pod(pod: Json) -> None:
    spec = pod["spec"]
    _fill(spec, _POD_DEFAULTS)
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("securityContext", {})
    for _, container in _containers(spec):
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
    for volume in spec.get("volumes", ()):
        for kind in ("secret", "configMap", "downwardAPI", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", _FILE_MODE)


def _prepare_new_pod(pod: Json) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _quality(pod["spec"])}


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


POD = Strategy(prepare_create=_prepare_new_pod, defaults=_default_pod, validate=_validate_pod)

# --- Deployment, DaemonSet --------------------------------------------------------------------------------

_DEPLOYMENT_DEFAULTS: Json = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_NOTHING_SCHEDULED: Json = {
    "currentNumberScheduled": 0,
    "desiredNumberScheduled": 0,
    "numberMisscheduled": 0,
    "numberReady": 0,
}


def _validate_workload(new: Json, old: Json | None) -> list[FieldError]:
    spec = new["spec"]
    selector = spec.get("selector")
    if not selector:
        return [required("spec.selector")]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    match_labels = selector.get("matchLabels") or {}
    errors: list[FieldError] = []
    if any(labels.get(key) != value for key, value in match_labels.items()):
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, text))
    if old is not None and old["spec"].get("selector") != selector:
        errors.append(invalid("spec.selector", selector, "field is immutable"))
    if not spec["template"].get("spec", {}).get("containers"):
        errors.append(required("spec.template.spec.containers"))
    if spec.get("replicas", 0) < 0:
        errors.append(invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
    return errors


DEPLOYMENT = Strategy(
    prepare_create=lambda obj: obj.update(status={}),
    defaults=lambda obj: _fill(obj["spec"], _DEPLOYMENT_DEFAULTS),
    validate=_validate_workload,
)
DAEMON_SET = Strategy(
    prepare_create=lambda obj: obj.update(status=dict(_NOTHING_SCHEDULED)), validate=_validate_workload
)
