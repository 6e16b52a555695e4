"""Python's official client: typed and custom objects, patches, watches, pages, Events, the dynamic client.

Run with its own interpreter: the kubeconfig by `KUBECONFIG`, the namespace to work in as the argument.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes.client.rest import ApiException

from kubernetes import client, config, dynamic, watch

GROUP = "cert-manager.io"


@contextmanager
def refused(status: int, reason: str) -> Iterator[None]:
    """What is done within must be answered so."""
    try:
        yield
    except ApiException as error:
        assert (error.status, reason in error.body) == (status, True), error.body
    else:
        raise AssertionError(f"nobody refused it with {status} {reason}")


def secrets(namespace: str) -> None:
    core = client.CoreV1Api()
    meta = client.V1ObjectMeta(name="one", labels={"app": "web"})
    made = core.create_namespaced_secret(
        namespace, client.V1Secret(metadata=meta, string_data={"key": "value"})
    )
    assert base64.b64decode(made.data["key"]) == b"value"
    with refused(409, "AlreadyExists"):
        core.create_namespaced_secret(namespace, client.V1Secret(metadata=meta))
    made.data["more"] = "eA=="
    stale = made.metadata.resource_version
    made = core.replace_namespaced_secret("one", namespace, made)
    made.metadata.resource_version = stale
    with refused(409, "Conflict"):
        core.replace_namespaced_secret("one", namespace, made)
    listed = core.list_namespaced_secret(
        namespace, label_selector="app in (web, db),!gone", field_selector="type=Opaque"
    )
    assert [item.metadata.name for item in listed.items] == ["one"]
    core.delete_namespaced_secret("one", namespace)
    with refused(404, "NotFound"):
        core.read_namespaced_secret("one", namespace)


def config_maps(namespace: str) -> None:
    core = client.CoreV1Api()
    for number in range(7):
        meta = client.V1ObjectMeta(name=f"c{number}", labels={"set": "c"})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=meta, data={"a": "1"}))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token, label_selector="set=c")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"c{number}" for number in range(7)]
    core.patch_namespaced_config_map("c0", namespace, {"data": {"b": "2"}})
    core.patch_namespaced_config_map("c0", namespace, [{"op": "remove", "path": "/data/a"}])
    assert core.read_namespaced_config_map("c0", namespace).data == {"b": "2"}
    dry = core.patch_namespaced_config_map("c0", namespace, {"data": {"b": "3"}}, dry_run="All")
    assert (dry.data, core.read_namespaced_config_map("c0", namespace).data) == ({"b": "3"}, {"b": "2"})
    core.delete_collection_namespaced_config_map(namespace, label_selector="set=c")
    assert core.list_namespaced_config_map(namespace, label_selector="set=c").items == []


def watching(namespace: str) -> None:
    core, watcher = client.CoreV1Api(), watch.Watch()
    listed = core.list_namespaced_config_map(namespace)
    meta = client.V1ObjectMeta(name="seen")
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=meta))
    core.patch_namespaced_config_map("seen", namespace, {"data": {"x": "y"}})
    core.delete_namespaced_config_map("seen", namespace)
    seen = []
    for event in watcher.stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=listed.metadata.resource_version,
        field_selector="metadata.name=seen",
        timeout_seconds=200,
    ):
        seen.append(event["type"])
        if event["type"] == "DELETED":
            watcher.stop()
    assert seen == ["ADDED", "MODIFIED", "DELETED"], seen


def certificate(name: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Certificate",
        "metadata": {"name": name},
        "spec": {"secretName": f"{name}-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "none"}},
    }


def custom_objects(namespace: str) -> None:
    custom = client.CustomObjectsApi()
    where: tuple[str, ...] = (GROUP, "v1", namespace, "certificates")
    custom.create_namespaced_custom_object(*where, certificate("web"))
    with refused(422, "spec.secretName"):
        custom.create_namespaced_custom_object(*where, {**certificate("bad"), "spec": {}})
    custom.patch_namespaced_custom_object(*where, "web", {"spec": {"dnsNames": ["a.example.com"]}})
    custom.patch_namespaced_custom_object_status(*where, "web", {"status": {"revision": 7}})
    obj = custom.get_namespaced_custom_object(*where, "web")
    assert obj["spec"]["dnsNames"] == ["a.example.com"]
    assert obj["status"]["revision"] == 7
    obj["spec"]["dnsNames"].append("b.example.com")
    while True:  # controllers write too
        try:
            custom.replace_namespaced_custom_object(*where, "web", obj)
            break
        except ApiException as error:
            assert error.status == 409, error
            fresh = custom.get_namespaced_custom_object(*where, "web")
            obj["metadata"] = fresh["metadata"]
    listed = custom.list_cluster_custom_object(GROUP, "v1", "certificates")
    assert "web" in [item["metadata"]["name"] for item in listed["items"]]
    custom.delete_namespaced_custom_object(*where, "web")


def events(namespace: str) -> None:
    core = client.CoreV1Api()
    about = client.V1ObjectReference(api_version="v1", kind="ConfigMap", name="x", namespace=namespace)
    meta = client.V1ObjectMeta(generate_name="x-")
    event = client.CoreV1Event(
        metadata=meta, involved_object=about, reason="Tested", message="Seen.", type="Normal"
    )
    core.create_namespaced_event(namespace, event)
    listed = core.list_namespaced_event(
        namespace, field_selector="involvedObject.name=x,reason=Tested,type!=Warning"
    )
    assert [item.message for item in listed.items] == ["Seen."]


def dynamically(namespace: str) -> None:
    dyn = dynamic.DynamicClient(client.ApiClient())
    kind = dyn.resources.get(api_version=f"{GROUP}/v1", kind="Certificate")
    kind.create(body=certificate("dyn"), namespace=namespace)
    applied = kind.server_side_apply(
        body=certificate("dyn"), namespace=namespace, name="dyn", field_manager="tester", force_conflicts=True
    )
    assert "tester" in [entry.manager for entry in applied.metadata.managedFields]
    for event in kind.watch(namespace=namespace, name="dyn", timeout=200):
        assert event["object"].metadata.name == "dyn"
        break
    kind.delete(name="dyn", namespace=namespace)


def main(namespace: str) -> None:
    config.load_kube_config()
    meta = client.V1ObjectMeta(name=namespace)
    client.CoreV1Api().create_namespace(client.V1Namespace(metadata=meta))
    assert client.VersionApi().get_code().git_version
    assert "v1" in client.CoreApi().get_api_versions().versions
    for step in (secrets, config_maps, watching, custom_objects, events, dynamically):
        step(namespace)
        print(f"done: {step.__name__}")


if __name__ == "__main__":
    main(sys.argv[1])
