"""Ingress, IngressClass, EndpointSlice: defaults and rules.

Source: Kubernetes API reference; Kubernetes `pkg/apis/networking/validation`,
`pkg/apis/discovery/validation`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, duplicate, invalid, not_supported, required, too_many
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.core_services import (
    PROTOCOLS,
    endpoint_address_errors,
    port_number_errors,
)
from certwright.kube.apiserver.model.definitions import Strategy

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must "
    "consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character "
    "(e.g. '*.example.com', regex used for validation is "
    "'\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)

# --- Ingress ----------------------------------------------------------------------------------------------


def _host_error(host: str) -> str | None:
    if "*" not in host:
        return object_names.dns_subdomain(host)
    plain = host.removeprefix("*.")
    return _WILDCARD_TEXT if plain == host or object_names.dns_subdomain(plain) else None


def _backend_errors(backend: Json, path: str) -> list[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service and resource:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource:
        return []
    if not service:
        return [required(path, "resource or service backend is required")]
    errors: list[FieldError] = []
    if not service.get("name"):
        errors.append(required(f"{path}.service.name"))
    elif text := object_names.dns_1035_label(service["name"]):
        errors.append(invalid(f"{path}.service.name", service["name"], text))
    port = service.get("port") or {}
    number, name = port.get("number"), port.get("name")
    if number and name:
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif number:
        errors += port_number_errors(f"{path}.service.port.number", number)
    elif not name:
        errors.append(required(path, "port name or number is required"))
    return errors


def _path_errors(entry: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kind, value = entry.get("pathType"), entry.get("path", "")
    if kind is None:
        errors.append(required(f"{path}.pathType", "pathType must be specified"))
    elif kind not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    if (value or kind in ("Exact", "Prefix")) and not value.startswith("/"):
        errors.append(invalid(f"{path}.path", value, "must be an absolute path"))
    return errors + _backend_errors(entry["backend"], f"{path}.backend")


_CLASS = "kubernetes.io/ingress.class"
"""The older form of `ingressClassName`, an annotation."""


def _class_in_annotations(ingress: Json) -> str | None:
    annotations: Json = ingress["metadata"].get("annotations") or {}
    return annotations.get(_CLASS)


def _validate_ingress(new: Json, old: Json | None) -> list[FieldError]:
    spec = new["spec"]
    errors: list[FieldError] = []
    if not spec.get("rules") and not spec.get("defaultBackend"):
        errors.append(invalid("spec", spec, "either `defaultBackend` or `rules` must be specified"))
    for index, rule in enumerate(spec.get("rules", ())):
        path, host = f"spec.rules[{index}]", rule.get("host", "")
        if host and (text := _host_error(host)):
            errors.append(invalid(f"{path}.host", host, text))
        http = rule.get("http")
        if http is not None and not http.get("paths"):
            errors.append(required(f"{path}.http.paths"))
        for at, entry in enumerate((http or {}).get("paths") or ()):
            errors += _path_errors(entry, f"{path}.http.paths[{at}]")
    for index, tls in enumerate(spec.get("tls", ())):
        for at, host in enumerate(tls.get("hosts", ())):
            if text := _host_error(host):
                errors.append(invalid(f"spec.tls[{index}].hosts[{at}]", host, text))
    if spec.get("defaultBackend"):
        errors += _backend_errors(spec["defaultBackend"], "spec.defaultBackend")
    older, name = _class_in_annotations(new), spec.get("ingressClassName")
    if old is None and None not in (older, name) and older != name:
        text = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{_CLASS}", older, text))
    return errors


def _ingress_warnings(new: Json, old: Json | None) -> list[str]:
    if old is not None or _class_in_annotations(new) is None or "ingressClassName" in new["spec"]:
        return []
    return [f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]


INGRESS = Strategy(
    prepare_create=lambda obj: obj.update(status={"loadBalancer": {}}),
    validate=_validate_ingress,
    warnings=_ingress_warnings,
)

# --- IngressClass -----------------------------------------------------------------------------------------


def _default_class(obj: Json) -> None:
    if obj["spec"].get("parameters"):
        obj["spec"]["parameters"].setdefault("scope", "Cluster")


def _validate_class(new: Json, old: Json | None) -> list[FieldError]:
    controller = new["spec"].get("controller", "")
    if old is not None and controller != old["spec"].get("controller", ""):
        return [invalid("spec.controller", controller, "field is immutable")]
    domain, slash, path = controller.partition("/")
    if (controller and not (slash and path)) or object_names.dns_subdomain(domain or "a"):
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [invalid("spec.controller", controller, text)]
    return []


INGRESS_CLASS = Strategy(defaults=_default_class, validate=_validate_class)

# --- EndpointSlice ----------------------------------------------------------------------------------------


def _default_slice(obj: Json) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _validate_slice(new: Json, old: Json | None) -> list[FieldError]:
    kind = new["addressType"]
    if not kind:
        return [required("addressType")]
    if kind not in _ADDRESS_TYPES:
        return [not_supported("addressType", kind, _ADDRESS_TYPES)]
    if old is not None and old.get("addressType") != kind:
        return [invalid("addressType", kind, "field is immutable")]
    errors = _slice_port_errors(new.get("ports") or [])
    endpoints = new.get("endpoints") or []
    if old is not None and endpoints == old.get("endpoints"):
        return errors  # they may be older than these rules
    if len(endpoints) > _MAX_ENDPOINTS:
        return [*errors, too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)]
    for index, endpoint in enumerate(endpoints):
        errors += _endpoint_errors(f"endpoints[{index}]", endpoint, kind)
    return errors


_MAX_PORTS, _MAX_ENDPOINTS, _MAX_ADDRESSES = 20_000, 1_000, 100


def _slice_port_errors(ports: list[Json]) -> list[FieldError]:
    if len(ports) > _MAX_PORTS:
        return [too_many("ports", len(ports), _MAX_PORTS)]
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name and (text := object_names.dns_label(name)):
            errors.append(invalid(f"{path}.name", name, text))
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port["protocol"] not in PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS))
    return errors


def _endpoint_errors(path: str, endpoint: Json, kind: str) -> list[FieldError]:
    errors: list[FieldError] = []
    addresses = endpoint.get("addresses") or []
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MAX_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        where = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            name = address.removesuffix(".")
            text = object_names.dns_subdomain(name)
            if text is None and "." not in name:
                text = "should be a domain with at least two segments separated by dots"
            if text:
                errors.append(invalid(where, address, text))
        else:
            errors += endpoint_address_errors(where, address, version=kind)
    if (hostname := endpoint.get("hostname")) is not None and (text := object_names.dns_label(hostname)):
        errors.append(invalid(f"{path}.hostname", hostname, text))
    if (node := endpoint.get("nodeName")) is not None and (text := object_names.dns_subdomain(node)):
        errors.append(invalid(f"{path}.nodeName", node, text))
    return errors


ENDPOINT_SLICE = Strategy(defaults=_default_slice, validate=_validate_slice)
