"""lightkube: models, generic resources, server-side apply, lists in chunks, watches, waiting.

Run with its own interpreter: the kubeconfig by `KUBECONFIG`, the namespace to work in as the argument.
"""

from __future__ import annotations

import sys

from lightkube import ApiError, Client, codecs
from lightkube.core.client import httpx2
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace, Secret
from lightkube.types import CascadeType, PatchType

Certificate = create_namespaced_resource("cert-manager.io", "v1", "Certificate", "certificates")


def secrets(client: Client, namespace: str) -> None:
    client.create(Secret(metadata=ObjectMeta(name="s", labels={"app": "web"}), stringData={"key": "value"}))
    try:
        client.create(Secret(metadata=ObjectMeta(name="s")))
    except ApiError as error:
        assert (error.status.code, error.status.reason) == (409, "AlreadyExists")
    else:
        raise AssertionError("made twice")
    secret = client.get(Secret, name="s")
    secret.data["more"] = "eA=="
    client.replace(secret)
    assert [item.metadata.name for item in client.list(Secret, labels={"app": ["web", "db"]})] == ["s"]
    assert [item.metadata.name for item in client.list(Secret, fields={"type": "Opaque"})] == ["s"]
    client.delete(Secret, "s", cascade=CascadeType.FOREGROUND)


def config_maps(client: Client, namespace: str) -> None:
    for number in range(7):
        client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", labels={"set": "c"}), data={"a": "1"}))
    listed = client.list(ConfigMap, chunk_size=3, labels={"set": "c"})
    assert [config_map.metadata.name for config_map in listed] == [f"c{number}" for number in range(7)]
    for kind, patch in (
        (PatchType.MERGE, {"data": {"b": "2"}}),
        (PatchType.STRATEGIC, {"data": {"c": "3"}}),
        (PatchType.JSON, [{"op": "remove", "path": "/data/a"}]),
    ):
        client.patch(ConfigMap, "c0", patch, patch_type=kind)
    assert client.get(ConfigMap, "c0").data == {"b": "2", "c": "3"}
    client.deletecollection(ConfigMap)
    assert list(client.list(ConfigMap, labels={"set": "c"})) == []


def applying(client: Client, namespace: str) -> None:
    applied = ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="a"), data={"x": "1"})
    client.apply(applied, field_manager="first")
    applied.data = {"x": "2"}
    try:
        client.apply(applied, field_manager="second")
    except ApiError as error:
        assert (error.status.code, error.status.details.causes[0].field) == (409, ".data.x"), error.status
    else:
        raise AssertionError("nobody minded")
    assert client.apply(applied, field_manager="second", force=True).data == {"x": "2"}
    client.delete(ConfigMap, "a")


def custom_objects(client: Client, namespace: str) -> None:
    text = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, dnsNames: [example.com], issuerRef: {name: none}}
"""
    (web,) = codecs.load_all_yaml(text)
    client.create(web)
    waited = client.wait(Certificate, "web", for_conditions=["Issuing"])
    assert waited.status["conditions"]
    client.patch(Certificate.Status, "web", {"status": {"revision": 4}}, patch_type=PatchType.MERGE)
    assert client.get(Certificate, "web").status["revision"] == 4
    everywhere = [
        (certificate.metadata.namespace, certificate.metadata.name)
        for certificate in client.list(Certificate, namespace="*")
    ]
    assert (namespace, "web") in everywhere
    client.delete(Certificate, "web")


def watching(client: Client, namespace: str) -> None:
    listed = client.list(ConfigMap)
    list(listed)
    version = listed.resourceVersion
    client.create(ConfigMap(metadata=ObjectMeta(name="w", labels={"watched": "yes"})))
    client.patch(ConfigMap, "w", {"data": {"x": "y"}}, patch_type=PatchType.MERGE)
    client.delete(ConfigMap, "w")
    seen = []
    for kind, config_map in client.watch(ConfigMap, labels={"watched": "yes"}, resource_version=version):
        seen.append((kind, config_map.metadata.name))
        if kind == "DELETED":
            break
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], seen


def events(client: Client, namespace: str) -> None:
    about = ObjectReference(apiVersion="v1", kind="ConfigMap", name="x", namespace=namespace)
    meta = ObjectMeta(generateName="x-", namespace=namespace)
    client.create(Event(metadata=meta, involvedObject=about, reason="Tested", message="Seen.", type="Normal"))
    event_list = client.list(Event, fields={"involvedObject.name": "x"})
    assert [event.message for event in event_list] == ["Seen."]
    assert client.get(Namespace, namespace).status.phase == "Active"


def main(namespace: str) -> None:
    client = Client(namespace=namespace, timeout=httpx2.Timeout(200))
    client.create(Namespace(metadata=ObjectMeta(name=namespace)))
    for step in (secrets, config_maps, applying, custom_objects, watching, events):
        step(client, namespace)
        print(f"done: {step.__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
