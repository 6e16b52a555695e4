"""Many objects at the same time: in order where it matters, with a summary."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from certwright.cli.bulk import Order, each_in_order
from cli.calls import Cli


async def test_results_come_in_order_and_one_that_is_alone_waits_for_all_before() -> None:
    running: set[int] = set()
    at_once: list[int] = []

    async def work(item: int) -> int:
        running.add(item)
        at_once.append(len(running))
        assert item != 70 or running == {70}
        assert item < 70 or max(running) >= 70 > max(done, default=-1) or 70 in done
        for _ in range(item % 7):
            await asyncio.sleep(0)
        running.discard(item)
        done.append(item)
        return -item

    done: list[int] = []
    results = each_in_order(range(150), work, alone=lambda item: item == 70)
    async with aclosing(results):
        pairs = [pair async for pair in results]
    assert pairs == [(item, -item) for item in range(150)]
    assert done != sorted(done)
    assert sorted(done[:70]) == list(range(70))
    assert 32 < max(at_once) <= 64


async def test_an_error_ends_the_others() -> None:
    ended = asyncio.Event()

    async def work(item: int) -> None:
        if item == 3:
            raise OSError("disk")
        if item > 3:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    results = each_in_order(range(50), work, alone=lambda _: False)
    async with aclosing(results):
        assert [await anext(results) for _ in range(3)] == [(item, None) for item in range(3)]
        with pytest.raises(OSError, match="disk"):
            await anext(results)
    assert ended.is_set()


def test_few_objects_namespaces_and_the_second_of_a_name_are_sent_alone() -> None:
    web = {"kind": "ConfigMap", "metadata": {"name": "web"}}
    assert Order(20).alone(web)
    order = Order(21)
    assert [order.alone(web), order.alone(web), order.alone({**web, "metadata": {"name": "api"}})] == [
        False,
        True,
        False,
    ]
    assert order.alone({"kind": "Namespace", "metadata": {"name": "shop"}})


def _many(namespace: str) -> str:
    things = f"things.{namespace}.example.com"
    version = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}"
    group, place = f"{namespace}.example.com", f"namespace: {namespace}"
    documents = [
        f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}",
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, "
        f"metadata: {{name: {things}}}, "
        f"spec: {{group: {group}, scope: Namespaced, names: {{plural: things, kind: Thing}}, "
        f"versions: [{version}]}}}}",
        f"{{apiVersion: {group}/v1, kind: Thing, metadata: {{name: t, {place}}}}}",
    ]
    documents += [
        f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m-{i}, labels: {{app: m}}, {place}}}, "
        "data: {a: b}}"
        for i in range(30)
    ]
    # One name twice, and one object that cannot be applied.
    documents += [documents[3].replace("a: b", "a: c"), documents[4].replace("m-1", "M-1")]
    return "\n---\n".join(documents)


def test_many_objects_are_applied_in_order_where_it_matters_and_counted(cli: Cli, namespace: str) -> None:
    shop = f"{namespace}x"
    first = cli("apply", "-f", "-", stdin=_many(shop))
    assert first.status == 1
    lines = first.out.splitlines()
    assert lines[:4] == [
        f"namespace/{shop} created",
        f"customresourcedefinition.apiextensions.k8s.io/things.{shop}.example.com created",
        f"thing.{shop}.example.com/t created (namespace {shop})",
        f"configmap/m-0 created (namespace {shop})",
    ]
    assert [line.split()[0] for line in lines[3:33]] == [f"configmap/m-{i}" for i in range(30)]
    assert lines[33] == f"configmap/m-0 configured (namespace {shop})"
    error, summary = first.err.splitlines()
    assert "document 35, line 69: ConfigMap" in error
    assert summary == "33 created, 1 configured, 1 failed"
    again = cli("apply", "-f", "-", stdin=_many(shop)).err.splitlines()
    assert again[1:] == ["32 unchanged, 2 configured, 1 failed"]
    gone = cli("delete", "configmap", "-l", "app=m", "-n", shop)
    assert (gone.status, gone.err) == (0, "30 deleted\n")
    maps = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m-{i}}}" for i in range(30)]
    gone = cli("delete", "-f", "-", "--ignore-not-found", "-n", shop, stdin="\n---\n".join(maps))
    assert (gone.status, gone.out, gone.err) == (0, "", "30 not found\n")
    cli("delete", "crd", f"things.{shop}.example.com", "--no-wait")
    cli("delete", "namespace", shop, "--no-wait")
