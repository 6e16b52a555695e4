"""The Service `kubernetes`, by which programs in a cluster find the API server, and its endpoints.

A loopback address is not published, because it is local to each machine: then only the Service is created.

Source: kube-apiserver `pkg/controlplane/controller/kubernetesservice`, `pkg/controlplane/reconcilers`.
"""

from __future__ import annotations

import ipaddress
from functools import partial

from certwright.kube.apiserver.ensuring import ensure_object
from certwright.kube.apiserver.model.objects import Json
from certwright.kube.util.http_messages import Handler, Identity

_NAME, _PORT = "kubernetes", "https"
_CORE, _SLICES = "/api/v1/namespaces/default", "/apis/discovery.k8s.io/v1/namespaces/default"


async def publish(handle: Handler, user: Identity, *, host: str, port: int) -> None:
    """Create or update Service, Endpoints and EndpointSlice.

    `host`: the address that the server listens on. Raises `ApiError`.
    """
    labels = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": _PORT, "port": 443, "protocol": "TCP", "targetPort": port}]
    spec = {"type": "ClusterIP", "sessionAffinity": "None", "ports": ports}
    await _ensure(handle, user, f"{_CORE}/services", {"metadata": _meta(labels), "spec": spec})
    address = _published(host)
    if address is None:
        return
    marked = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    where = [{"name": _PORT, "port": port, "protocol": "TCP"}]
    subsets = [{"addresses": [{"ip": str(address)}], "ports": where}]
    await _ensure(handle, user, f"{_CORE}/endpoints", {"metadata": _meta(marked), "subsets": subsets})
    piece: Json = {
        "metadata": _meta({"kubernetes.io/service-name": _NAME}),
        "addressType": f"IPv{address.version}",
        "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
        "ports": where,
    }
    await _ensure(handle, user, f"{_SLICES}/endpointslices", piece)


def _meta(labels: dict[str, str]) -> Json:
    return {"name": _NAME, "labels": labels}


def _published(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    refused = address.is_loopback or address.is_unspecified or address.is_link_local
    return None if refused else address


async def _ensure(handle: Handler, user: Identity, path: str, obj: Json) -> None:
    await ensure_object(handle, user, path, obj, partial(_brought_into_line, desired=obj))


def _brought_into_line(stored: Json, desired: Json) -> Json:
    return stored | {name: value for name, value in desired.items() if name != "metadata"}
