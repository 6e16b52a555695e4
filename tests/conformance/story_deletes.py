"""Stories about deletions: their options, one by one and together."""

from __future__ import annotations

from typing import Any

from conformance.compare import story
from conformance.kinds import Json, in_namespace, widget
from conformance.peers import Caller

_POLICIES: tuple[Json, ...] = (
    {},
    {"propagationPolicy": "Background"},
    {"propagationPolicy": "Orphan"},
    {"orphanDependents": True},
    {"orphanDependents": False},
    {"propagationPolicy": ""},
    {"propagationPolicy": None, "orphanDependents": None},
    {"gracePeriodSeconds": 0},
    {"gracePeriodSeconds": 30},
    {"gracePeriodSeconds": -1},
)


@story
async def deletions_have_a_policy(c: Caller) -> None:
    # Never looked at again: the reference has no garbage collector, and ours works off what is orphaned.
    path = in_namespace(c.namespace)
    for number, options in enumerate(_POLICIES):
        for finalizers in ((), ("x.y/z",), ("orphan",)):
            name = f"a{number}-{len(finalizers)}{finalizers[0][0] if finalizers else ''}"
            await c.post(path, widget(name, meta={"finalizers": list(finalizers)}))
            if finalizers != ("orphan",):
                # Where a policy would take the last finalizer, the reference's dry run shows an empty object.
                await c.delete(f"{path}/{name}", {**options, "dryRun": ["All"]})
            await c.delete(f"{path}/{name}", options)


@story
async def deletions_are_asked_for_in_the_query(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for number, query in enumerate(
        (
            "propagationPolicy=",
            "propagationPolicy=background",
            "propagationPolicy=Background&orphanDependents=true",
            "orphanDependents=false",
            "orphanDependents=nonsense",
            "orphanDependents=",
            "gracePeriodSeconds=",
            "gracePeriodSeconds=1.5",
            "gracePeriodSeconds=99999999999999999999",
            "preconditions.uid=x",
            "dryRun=All&gracePeriodSeconds=5",
            "dryRun=Some&propagationPolicy=x",
            "timeout=x",
        )
    ):
        await c.post(path, widget(f"a{number}"))
        await c.delete(f"{path}/a{number}?{query}")
    await c.post(path, widget("held", meta={"finalizers": ["x.y/z"]}))
    await c.delete(f"{path}/held?orphanDependents=false")
    await c.delete(f"{path}/held?orphanDependents=false")


_BODIES: tuple[Any, ...] = (
    b"null",
    b" ",
    b'"x"',
    b"5",
    {},
    {"kind": "DeleteOptions"},
    {"kind": "DeleteOptions", "apiVersion": "v1"},
    {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
    {"kind": "DeleteOptions", "apiVersion": "v9"},
    {"kind": "DeleteOptions", "apiVersion": "other/v1"},
    {"kind": "Status", "apiVersion": "v1"},
    {"kind": "Widget", "apiVersion": "test.dev/v1"},
    {"kind": "Nothing", "apiVersion": "v1"},
    {"kind": "ListOptions", "apiVersion": "meta.k8s.io/v1"},
    {"kind": 5},
    {"unknown": 1},
    {"dryRun": "All"},
    {"dryRun": [5]},
    {"dryRun": ["All", "Some"]},
    {"dryRun": []},
    {"preconditions": "x"},
    {"preconditions": {}},
    {"preconditions": None},
    {"preconditions": {"uid": 5}},
    {"preconditions": {"resourceVersion": 5}},
    {"preconditions": {"uid": ""}},
    {"preconditions": {"resourceVersion": ""}},
    {"propagationPolicy": 5},
    {"orphanDependents": "x"},
    {"gracePeriodSeconds": 1.5},
    {"gracePeriodSeconds": "5"},
    {"propagationPolicy": "x", "dryRun": ["y"], "orphanDependents": True},
)


@story
async def deletions_are_described_in_a_body(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for number, body in enumerate(_BODIES):
        await c.post(path, widget(f"a{number}"))
        await c.delete(f"{path}/a{number}", body)
        await c.delete(f"{path}?dryRun=All&labelSelector=none=such", body)
        await c.delete(f"{path}/missing", body)
    await c.get(path)


@story
async def the_dying_are_deleted_again(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a", meta={"finalizers": ["x.y/z"]}))).json["metadata"]
    await c.delete(f"{path}/a", {"preconditions": {"uid": made["uid"]}})
    await c.delete(f"{path}/a", {"preconditions": {"uid": "other"}})
    await c.delete(f"{path}/a", {"preconditions": {"resourceVersion": made["resourceVersion"]}})
    await c.delete(f"{path}/a?dryRun=All")
    await c.delete(f"{path}/a", {"gracePeriodSeconds": 10})
    await c.delete(f"{path}/a", {"propagationPolicy": "Background"})
    await c.patch(f"{path}/a/status", {"status": {"phase": "x"}})
    await c.patch(f"{path}/a", {"spec": {"size": 7}})
    await c.get(f"{path}/a")
    await c.patch(f"{path}/a?dryRun=All", {"metadata": {"finalizers": []}})
    await c.patch(f"{path}/a", [{"op": "remove", "path": "/metadata/finalizers/0"}], "json")
    await c.get(f"{path}/a")


@story
async def collections_are_deleted_with_options(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for name in "abcdef":
        metadata = {"finalizers": ["x.y/z"]} if name in "ef" else {}
        await c.post(path, widget(name, meta={"labels": {"n": name}, **metadata}))
    stored = (await c.get(f"{path}/a", quiet=True)).json["metadata"]
    await c.delete(f"{path}?labelSelector=n+in+(a,b)", {"dryRun": ["All"]})
    await c.delete(f"{path}?labelSelector=n+in+(a,b)&dryRun=All", {"propagationPolicy": "Background"})
    for selector in ("n=a,", "n%3D%3Da", "!n", "n+notin+(a,b,c,d,e,f)", "fieldSelector"):
        await c.delete(f"{path}?labelSelector={selector}")
    await c.delete(f"{path}?fieldSelector=metadata.name!=a,metadata.namespace=elsewhere")
    await c.delete(f"{path}?fieldSelector=nonsense")
    await c.delete(f"{path}?labelSelector=n=c&limit=1")
    await c.delete(f"{path}?limit=x")
    await c.delete(f"{path}?labelSelector=n=d&resourceVersion=0")
    await c.delete(f"{path}?resourceVersion=x")
    await c.delete(f"{path}?resourceVersionMatch=Exact")
    await c.delete(f"{path}?labelSelector=n=b", {"preconditions": {"uid": stored["uid"]}})
    await c.get(path)
    await c.delete(f"{path}?labelSelector=n=e", {"gracePeriodSeconds": 5})
    await c.delete(f"{path}?labelSelector=n=e")
    await c.delete(f"{path}?labelSelector=n=f", {"orphanDependents": False})
    await c.get(path)
    await c.delete(in_namespace(f"{c.namespace}-b"))
    await c.delete(in_namespace("no-such-namespace"))
