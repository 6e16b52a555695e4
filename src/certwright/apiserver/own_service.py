"""The Service `kubernetes`, by which programs in a cluster find the API server, and where it leads.

A loopback address is nobody else's, so it is not published: then there is the Service alone.

Source: kube-apiserver `pkg/controlplane/controller/kubernetesservice`, `pkg/controlplane/reconcilers`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from certwright.apiserver.objects import Json, decode_json, encode_json
from certwright.kit.exchange import Identity, Request, Response
from certwright.resources.errors import from_response

_NAME, _PORT = "kubernetes", "https"
_CORE, _SLICES = "/api/v1/namespaces/default", "/apis/discovery.k8s.io/v1/namespaces/default"

Ask = Callable[[Request], Awaitable[Response]]


async def publish(ask: Ask, user: Identity, *, host: str, port: int) -> None:
    """Create or bring into line Service, Endpoints and EndpointSlice.

    `host`: the address that the server listens on. Raises `ApiError`.
    """
    labels = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": _PORT, "port": 443, "protocol": "TCP", "targetPort": port}]
    spec = {"type": "ClusterIP", "sessionAffinity": "None", "ports": ports}
    await _ensure(ask, user, f"{_CORE}/services", {"metadata": _meta(labels), "spec": spec})
    address = _published(host)
    if address is None:
        return
    marked = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    where = [{"name": _PORT, "port": port, "protocol": "TCP"}]
    subsets = [{"addresses": [{"ip": str(address)}], "ports": where}]
    await _ensure(ask, user, f"{_CORE}/endpoints", {"metadata": _meta(marked), "subsets": subsets})
    piece: Json = {
        "metadata": _meta({"kubernetes.io/service-name": _NAME}),
        "addressType": f"IPv{address.version}",
        "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
        "ports": where,
    }
    await _ensure(ask, user, f"{_SLICES}/endpointslices", piece)


def _meta(labels: dict[str, str]) -> Json:
    return {"name": _NAME, "labels": labels}


def _published(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return None if address.is_loopback or address.is_unspecified else address


async def _ensure(ask: Ask, user: Identity, path: str, wanted: Json) -> None:
    target, agent = f"{path}/{_NAME}", {"user-agent": "kube-apiserver"}
    found = await ask(Request("GET", target, user=user))
    if found.status == 404:
        answer = await ask(Request("POST", path, agent, encode_json(wanted), user))
    else:
        changed = {**decode_json(found.body), **{key: wanted[key] for key in wanted if key != "metadata"}}
        answer = await ask(Request("PUT", target, agent, encode_json(changed), user))
    if answer.status >= 400 and answer.status != 409:
        raise from_response(answer.status, answer.body)
