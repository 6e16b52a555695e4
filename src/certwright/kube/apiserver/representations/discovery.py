"""API discovery: groups, versions, resources; the first request of every client.

In two forms: one document per group and version, and the aggregated one with all of them. Responses are built
once per state of the registry.

Source: Kubernetes API reference, APIVersions, APIGroupList, APIGroup, APIResourceList v1 meta; KEP-3352
(aggregated discovery); Kubernetes documentation, "API discovery".
"""

from __future__ import annotations

import base64
import hashlib
import platform

import msgspec

from certwright import __version__
from certwright.kube.api.errors import Details, MethodNotAllowed, NotAcceptable
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import STATUS, ResourceDefinition, Subresource
from certwright.kube.apiserver.model.negotiation import WIRES, plain_wire
from certwright.kube.apiserver.model.registry import Group, Registry
from certwright.kube.util.http_messages import Response

NO_CACHE = "no-cache, private"

AGGREGATED: dict[str, str] = {
    version: f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
}
"""The media types of the aggregated form, by version."""

# The version of the Kubernetes API that this server follows. kubectl warns when it is more than one minor
# version away.
_MINOR = 33


def respond(
    registry: Registry, path: str, accept: str, if_none_match: str = "", *, method: str = "GET"
) -> Response | None:
    """The response to a request for `path`, or None where the path is not one of discovery.

    `accept` and `if_none_match` are the headers as received. Raises `MethodNotAllowed`, and `NotAcceptable`
    for a form that does not exist.
    """
    path = path.rstrip("/")
    form = _form(accept) if path in ("/api", "/apis") else ""
    document = _document(registry, path, form)
    if document is None:
        return None
    name = path.removeprefix("/apis/").partition("/")[0]
    definitions = [definition for definition in registry.all() if definition.group == name]
    if not definitions or not all(definition.custom for definition in definitions):
        # Kubernetes' router checks method and form before its handlers do. Its handler of custom resources
        # treats any method as GET.
        if method != "GET":
            text = "the server does not allow this method on the requested resource"
            raise MethodNotAllowed(text, details=Details())
        media = {item.partition(";")[0].strip() for item in accept.split(",")}
        if not media & {"", "*/*", *WIRES}:
            text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(WIRES)}"
            raise NotAcceptable(text, details=Details())
    body, etag = document
    if not form:
        plain_wire(accept)
        return Response(200, {"content-type": "application/json", "cache-control": NO_CACHE}, body)
    headers = {
        "content-type": AGGREGATED[form],
        "vary": "Accept",
        "etag": etag,
        "cache-control": "public",
    }
    return Response(304, headers) if if_none_match == etag else Response(200, headers, body)


def _document(registry: Registry, path: str, form: str) -> tuple[bytes, str] | None:
    made = registry.made.get((path, form))
    if made is None:
        content = _make(registry, path, form)
        if content is None:
            return None
        body = msgspec.json.encode(content)
        made = (body, f'"{hashlib.sha512(body).hexdigest().upper()}"')
        registry.made[path, form] = made
    return made


def _make(registry: Registry, path: str, form: str) -> Json | None:
    if path in ("/api", "/apis"):
        if form:
            return _aggregated(registry, form, core=path == "/api")
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        groups = [_group(group) for group in registry.groups() if group.name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    match path.split("/")[1:]:
        case ["version"]:
            return {
                "major": "1",
                "minor": str(_MINOR),
                "gitVersion": f"v1.{_MINOR}.0+certwright-{__version__}",
                "gitCommit": "",
                "gitTreeState": "clean",
                "buildDate": "",
                "goVersion": "",
                "compiler": platform.python_implementation(),
                "platform": f"{platform.system()}/{platform.machine()}".lower(),
            }
        case ["api", "v1"]:
            return _resource_list(registry, "", "v1")
        case ["apis", name]:
            group = _find(registry, name)
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)} if group else None
        case ["apis", name, version]:
            group = _find(registry, name)
            return _resource_list(registry, name, version) if group and version in group.versions else None
        case _:
            return None


def _find(registry: Registry, name: str) -> Group | None:
    return next((group for group in registry.groups() if group.name == name and name), None)


def _form(accept: str) -> str:
    """The requested version of the aggregated form, or "" for the old form: the first that we support."""
    for item in accept.split(","):
        kind, *pairs = (part.strip() for part in item.split(";"))
        parameters = dict(pair.partition("=")[::2] for pair in pairs)
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return ""
        is_list = parameters["as"] == "APIGroupDiscoveryList"
        if is_list and parameters.get("g") == "apidiscovery.k8s.io" and parameters.get("v") in AGGREGATED:
            return parameters["v"]
    return ""


# --- one document each ------------------------------------------------------------------------------------


def _group(group: Group) -> Json:
    versions = [{"groupVersion": f"{group.name}/{version}", "version": version} for version in group.versions]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Json:
    resources: list[Json] = []
    for definition in registry.in_version(group, version):
        storage_hash: Json = {}
        if not definition.virtual:
            # A name for the version that objects are kept in (apiserver `pkg/endpoints/discovery`).
            stored_group = "" if definition.stored_as else definition.group
            stored = f"{stored_group}/{definition.stored_version}/{definition.kind}"
            digest = hashlib.sha256(stored.encode()).digest()[:8]
            storage_hash["storageVersionHash"] = base64.b64encode(digest).decode()
        resources.append(
            {
                "name": definition.plural,
                "singularName": definition.singular,
                "namespaced": definition.namespaced,
                "kind": definition.kind,
                "verbs": definition.verbs,
                **_optional_fields(definition),
                **storage_hash,
            }
        )
        for part in parts(definition):
            entry: Json = {
                "name": f"{definition.plural}/{part.name}",
                "singularName": "",
                "namespaced": definition.namespaced,
                "kind": definition.kind,
                "verbs": part.verbs,
            }
            if part.kind is not None:
                entry["group"], entry["version"], entry["kind"] = part.kind
            resources.append(entry)
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def parts(definition: ResourceDefinition) -> tuple[Subresource, ...]:
    """All subresources of a kind, `status` among them."""
    subresources = definition.subresources
    if not definition.status_subresource:
        return subresources
    # In the order that Kubernetes lists them for custom resources, and for its own.
    return (STATUS, *subresources) if definition.custom else (*subresources, STATUS)


def _optional_fields(definition: ResourceDefinition) -> Json:
    words = {"shortNames": definition.short_names, "categories": definition.categories}
    return {key: value for key, value in words.items() if value}


# --- aggregated -------------------------------------------------------------------------------------------


def _aggregated(registry: Registry, version: str, *, core: bool) -> Json:
    items = []
    for group in registry.groups():
        if (group.name == "") != core:
            continue
        versions = [
            {
                "version": version,
                "resources": [_aggregated_resource(d) for d in registry.in_version(group.name, version)],
                "freshness": "Current",
            }
            for version in group.versions
        ]
        items.append({"metadata": {"name": group.name} if group.name else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(definition: ResourceDefinition) -> Json:
    kind = {"group": definition.group, "version": definition.version, "kind": definition.kind}
    resource: Json = {
        "resource": definition.plural,
        "responseKind": kind,
        "scope": "Namespaced" if definition.namespaced else "Cluster",
        "singularResource": definition.singular,
        "verbs": definition.verbs,
        **_optional_fields(definition),
    }
    subresources = []
    for part in parts(definition):
        names = (definition.group, definition.version, definition.kind) if part.kind is None else part.kind
        own_kind = dict(zip(kind, names, strict=True))
        subresources.append({"subresource": part.name, "responseKind": own_kind, "verbs": part.verbs})
    if subresources:
        resource["subresources"] = subresources
    return resource
