"""kopf: an operator with handlers, finalizers, its own annotations, status patches and Events.

Run with its own interpreter: the kubeconfig by `KUBECONFIG`, the namespace to work in as the argument.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import kopf

from kubernetes import client, config

seen: list[tuple[str, str]] = []
GROUP = ("cert-manager.io", "v1", "certificates")


def note(what: str) -> Any:
    def handler(name: str, patch: Any, body: Any, **_: Any) -> None:
        if name == "kube-root-ca.crt":
            return
        seen.append((what, name))
        if what == "created":
            kopf.info(body, reason="Noticed", message=f"{name} is new")
            patch.setdefault("metadata", {}).setdefault("labels", {})["noticed"] = "yes"

    return handler


def note_certificate(name: str, patch: Any, **_: Any) -> None:
    seen.append(("certificate", name))
    patch.setdefault("status", {})["revision"] = 9


async def until(condition: Callable[[], bool]) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(200):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


async def scenario(namespace: str) -> None:
    core, custom = client.CoreV1Api(), client.CustomObjectsApi()
    where = (*GROUP[:2], namespace, GROUP[2])

    def labels() -> dict[str, str]:
        return core.read_namespaced_config_map("watched", namespace).metadata.labels or {}

    def status() -> dict[str, Any]:
        web_status: dict[str, Any] = custom.get_namespaced_custom_object(*where, "web").get("status", {})
        return web_status

    def left(field_selector: str) -> list[Any]:
        return list(core.list_namespaced_config_map(namespace, field_selector=field_selector).items)

    def events() -> list[Any]:
        return list(core.list_namespaced_event(namespace, field_selector="reason=Noticed").items)

    meta = client.V1ObjectMeta(name="watched")
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=meta, data={"a": "1"}))
    await until(lambda: ("created", "watched") in seen and labels().get("noticed") == "yes")
    finalizers = core.read_namespaced_config_map("watched", namespace).metadata.finalizers
    assert finalizers, "kopf holds the object until its handler of deletions has run"
    print("done: creation", flush=True)
    core.patch_namespaced_config_map("watched", namespace, {"data": {"a": "2"}})
    await until(lambda: ("updated", "watched") in seen)
    print("done: update", flush=True)
    core.delete_namespaced_config_map("watched", namespace)
    await until(lambda: ("deleted", "watched") in seen and not left("metadata.name=watched"))
    print("done: deletion", flush=True)
    spec = {"secretName": "web-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "none"}}
    api_version = "/".join(GROUP[:2])
    body = {"apiVersion": api_version, "kind": "Certificate", "metadata": {"name": "web"}, "spec": spec}
    custom.create_namespaced_custom_object(*where, body)
    await until(lambda: ("certificate", "web") in seen and status().get("revision") == 9)
    print("done: status of a custom object", flush=True)
    await until(lambda: bool(events()))
    print("done: events", flush=True)


async def main(namespace: str) -> None:
    config.load_kube_config()
    client.CoreV1Api().create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    kopf.on.create("configmaps", registry=registry)(note("created"))
    kopf.on.update("configmaps", registry=registry)(note("updated"))
    kopf.on.delete("configmaps", registry=registry)(note("deleted"))
    kopf.on.create(*GROUP, registry=registry)(note_certificate)
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry, namespaces=[namespace], standalone=True, ready_flag=ready, stop_flag=stop
        )
    )
    await asyncio.wait_for(ready.wait(), 200)
    try:
        await scenario(namespace)
    finally:
        stop.set()
        await asyncio.wait_for(operator, 60)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(sys.argv[1]))
