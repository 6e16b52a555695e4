"""kr8s: objects with methods, kinds made on the spot, label selectors, waiting, watching.

Run with its own interpreter: the kubeconfig by `KUBECONFIG`, the namespace to work in as the argument.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import kr8s
from kr8s.objects import ConfigMap, Event, Namespace, Secret, new_class

Certificate: Any = new_class("Certificate", version="cert-manager.io/v1", namespaced=True)


def secrets(namespace: str) -> None:
    secret = Secret({"metadata": {"name": "s", "namespace": namespace}, "stringData": {"key": "value"}})
    secret.create()
    assert secret.exists()
    secret.label({"app": "web"})
    secret.annotate({"note": "seen"})
    secret.patch({"data": {"more": "eA=="}})
    secret.refresh()
    assert (secret.labels["app"], secret.annotations["note"], set(secret.raw["data"])) == (
        "web",
        "seen",
        {"key", "more"},
    )
    (listed_secret,) = kr8s.get("secrets", namespace=namespace, label_selector={"app": "web"})
    assert listed_secret.name == "s"
    (listed_secret,) = kr8s.get("secrets", namespace=namespace, field_selector="metadata.name=s")
    assert listed_secret.raw["data"]["more"] == "eA=="
    secret.delete()
    secret.wait("delete", timeout=200)
    assert not secret.exists()


def patches(namespace: str) -> None:
    maps = ConfigMap({"metadata": {"name": "m", "namespace": namespace}, "data": {"a": "1"}})
    maps.create()
    maps.patch([{"op": "replace", "path": "/data/a", "value": "2"}], type="json")
    assert maps.raw["data"] == {"a": "2"}
    maps.delete()


def custom_objects(namespace: str) -> None:
    spec = {"secretName": "web-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "none"}}
    web = Certificate({"metadata": {"name": "web", "namespace": namespace}, "spec": spec})
    web.create()
    # kr8s's wait for a condition fails on an object that has no status at all, as it is right after a create.
    deadline = time.monotonic() + 200
    while "status" not in web.raw and time.monotonic() < deadline:
        time.sleep(0.02)
        web.refresh()
    web.wait("condition=Issuing", timeout=200)
    web.patch({"status": {"revision": 3}}, subresource="status")
    web.refresh()
    assert web.raw["status"]["revision"] == 3
    assert [
        certificate.name for certificate in kr8s.get("certificates.cert-manager.io", namespace=namespace)
    ] == ["web"]
    web.delete()


def watching(namespace: str) -> None:
    seen: list[tuple[str, str]] = []
    ready = threading.Event()

    def read() -> None:
        for kind, config_map in kr8s.watch("configmaps", namespace=namespace, label_selector="watched=yes"):
            seen.append((kind, config_map.name))
            ready.set()
            if kind == "DELETED":
                return

    reader = threading.Thread(target=read, daemon=True)
    first = ConfigMap({"metadata": {"name": "w", "namespace": namespace, "labels": {"watched": "yes"}}})
    first.create()
    reader.start()
    assert ready.wait(200)
    first.patch({"data": {"x": "y"}})
    first.delete()
    reader.join(200)
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], seen


def events(namespace: str) -> None:
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": namespace}
    event = {"metadata": {"generateName": "x-", "namespace": namespace}, "involvedObject": about}
    Event({**event, "reason": "Tested", "message": "Seen.", "type": "Normal"}).create()
    listed = list(kr8s.get("events", namespace=namespace, field_selector="involvedObject.name=x"))
    assert [item.raw["message"] for item in listed] == ["Seen."]


def cluster(namespace: str) -> None:
    api = kr8s.api()
    assert "gitVersion" in api.version()
    assert {"certificates", "secrets"} <= {resource["name"] for resource in api.api_resources()}
    assert Namespace.get(namespace).raw["status"]["phase"] == "Active"


def main(namespace: str) -> None:
    Namespace({"metadata": {"name": namespace}}).create()
    for step in (secrets, patches, custom_objects, watching, events, cluster):
        step(namespace)
        print(f"done: {step.__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
