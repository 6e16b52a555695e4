"""A story about versions that a webhook converts: one webhook, asked by either server."""

from __future__ import annotations

from conformance.compare import story
from conformance.kinds import CRDS, INTEGER, STRING, Json, an_object, crd
from conformance.peers import Caller
from conformance.servers import until_gone, until_served
from kube.apiserver.webhook_server import running

GROUP = "hosts.dev"


def _convert(request: Json) -> Json:
    """v1 has `host: name:port`, v2 has `name` and `port`."""
    desired, converted = request["desiredAPIVersion"], []
    for obj in request["objects"]:
        spec = obj.get("spec") or {}
        if desired.endswith("/v2"):
            name, _, port = spec.get("host", ":0").partition(":")
            spec = {"name": name, "port": int(port)}
        else:
            spec = {"host": f"{spec.get('name', '')}:{spec.get('port', 0)}"}
        converted.append({**obj, "apiVersion": desired, "spec": spec})
    return {"result": {"status": "Success"}, "convertedObjects": converted}


def _definition(client: Json) -> Json:
    made = crd("hosts", an_object(spec=an_object(host=STRING)), kind="Host", group=GROUP)
    [first] = made["spec"]["versions"]
    schema = {"openAPIV3Schema": an_object(spec=an_object(name=STRING, port=INTEGER))}
    made["spec"]["versions"].append({**first, "name": "v2", "storage": False, "schema": schema})
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return made


def _host(version: str, name: str, spec: Json) -> Json:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Host", "metadata": {"name": name}, "spec": spec}


@story
async def versions_are_converted_by_a_webhook(c: Caller) -> None:
    first, second = (f"/apis/{GROUP}/{version}/namespaces/{c.namespace}/hosts" for version in ("v1", "v2"))
    async with running() as webhook:
        webhook.answers["/convert"] = _convert
        definition = _definition(webhook.client_config("/convert"))
        path = f"{CRDS}/hosts.{GROUP}"
        await c.post(CRDS, definition, quiet=True)
        await until_served(c, second)
        await c.post(first, _host("v1", "a", {"host": "x:1"}))
        await c.post(second, _host("v2", "b", {"name": "y", "port": 2}))
        for collection in (first, second):
            await c.get(collection)
            await c.get(f"{collection}/a")
        await c.patch(f"{second}/a", {"spec": {"port": 3}})
        await c.patch(f"{second}/a", [{"op": "replace", "path": "/spec/name", "value": "z"}], "json")
        await c.patch(f"{second}/a?fieldManager=ann", _host("v2", "a", {"port": 4}), "apply")
        await c.patch(f"{second}/a?fieldManager=ann&force=true", _host("v2", "a", {"port": 4}), "apply")
        await c.patch(f"{second}/c?fieldManager=ann", _host("v2", "c", {"name": "c", "port": 5}), "apply")
        await c.get(f"{first}/a")
        versions = definition["spec"]["versions"]
        moved = [{**versions[0], "storage": False}, {**versions[1], "storage": True}]
        await c.patch(path, {"spec": {"versions": moved}}, quiet=True)
        for collection in (first, second):
            await until_served(c, collection)
        await c.get(first)
        await c.get(second)
        await c.patch(f"{first}/b", {"metadata": {"labels": {"a": "b"}}})
        await c.get(f"{second}/b")
        await c.delete(f"{first}/b")
        await c.get(second)
        await c.delete(path, quiet=True)
        await until_gone(c, path)
