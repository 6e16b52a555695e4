"""Stories about getting and listing."""

from __future__ import annotations

from conformance.compare import story
from conformance.kinds import GAUGES_PATH, gauge, in_namespace, widget
from conformance.peers import Ask, Caller

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TABLE_BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


async def _some(c: Caller) -> str:
    path = in_namespace(c.namespace)
    for number, name in enumerate(("a", "b", "c", "d", "e")):
        labels = {"tier": "front" if number % 2 else "back", "n": str(number), "only": name}
        if name == "e":
            labels = {}
        owner = {"owner": "me"} if number < 2 else {}
        await c.post(
            path, widget(name, meta={"labels": labels}, size=number + 1, enabled=number > 2, **owner)
        )
    return path


@story
async def objects_are_got(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.get(path)
    made = (await c.post(path, widget("a"))).json
    version = made["metadata"]["resourceVersion"]
    await c.get(f"{path}/a")
    await c.get(f"{path}/missing")
    await c.get(f"{path}/a?resourceVersion=0")
    await c.get(f"{path}/a?resourceVersion={version}")
    await c.get(f"{path}/a?resourceVersion=abc")
    await c.get(f"{path}/a?resourceVersionMatch=Exact&resourceVersion={version}")
    await c.get(f"{path}/a?pretty=false&unknown=parameter")
    await c.get(in_namespace(c.other) + "/a")
    await c.get(f"{path}/UPPER")
    await c.get(f"{path}/a%2Fb")
    await c.call("HEAD", f"{path}/a")
    await c.call("HEAD", path)
    await c.call("OPTIONS", path)
    await c.call("OPTIONS", f"{path}/a")
    await c.get(f"{path}/")
    await c.get(f"{path}/a/")


@story
async def paths_that_name_nothing(c: Caller) -> None:
    for path in (
        "/apis/test.dev/v1/nothings",
        "/apis/test.dev/v1/namespaces/x/nothings",
        "/apis/test.dev/v1/namespaces/x/nothings/a",
        "/apis/test.dev/v9/widgets",
        "/apis/test.dev/v9",
        "/apis/test.dev",
        "/apis/test.dev/v1",
        "/apis/nothing.dev",
        "/apis/nothing.dev/v1",
        "/apis/nothing.dev/v1/widgets",
        "/apis/test.dev/v1/widgets/a",
        "/apis/test.dev/v1/namespaces/x/gauges",
        "/apis/test.dev/v1/namespaces/x/gauges/a",
        "/apis/test.dev/v1/namespaces/x/widgets/a/b/c",
        "/apis/test.dev/v1/namespaces/x/widgets//a",
        "/apis/test.dev/v1/namespaces",
        "/apis/test.dev/v1/namespaces/x",
    ):
        await c.get(path)
        await c.post(path, widget("a"))
        await c.delete(path)


@story
async def methods_that_nobody_has(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    await c.put(path, widget("a"))
    await c.patch(path, {"spec": {}})
    await c.post(f"{path}/a", widget("a"))
    await c.post("/apis/test.dev/v1/widgets", widget("a"))
    await c.post("/apis/test.dev/v1/widgets", widget("a", meta={"namespace": c.namespace}))
    await c.delete("/apis/test.dev/v1/widgets?labelSelector=nobody=here")
    await c.call("TRACE", path)
    await c.call("FOO", path)
    await c.call("FOO", f"{path}/a")
    async with c.watch(f"{path}/a") as events:
        await events.opened()
        await events.take(1)


@story
async def lists_are_selected_by_label(c: Caller) -> None:
    path = await _some(c)
    for selector in (
        "tier=front",
        "tier==back",
        "tier!=front",
        "tier",
        "!tier",
        "tier%20in%20(front,back)",
        "tier%20notin%20(front)",
        "tier%20in%20()",
        "tier%20in%20(,)",
        "tier=",
        "tier=front,n=1",
        "tier=front,n=2",
        "n%3E1",
        "n%3C2",
        "n%3Ex",
        "n%3E=1",
        "",
        ",",
        "tier,",
        ",tier",
        "tier=front%20back",
        "tier=bad!value",
        "bad%20key",
        "-bad=x",
        "tier%20in%20front",
        "tier%20in%20(front",
        "tier%20near%20(front)",
        "!",
        "!tier=front",
        "tier===front",
        "a/b/c=d",
        "x" * 64 + "=a",
        "tier=" + "x" * 64,
        "(",
        "=",
        "tier%20in%20(a,%20b%20,c)",
        "tier=)",
        "tier%20in%20(b%20c)",
        "tier%20in%20(b,=)",
        "tier%20in%20=",
        "tier%20in%20(=",
        "tier=b=c",
        "tier=-b",
        "tier%20in%20(-c,-b)",
    ):
        await c.get(f"{path}?labelSelector={selector}", accept=PARTIAL_LIST)


@story
async def lists_are_selected_by_field(c: Caller) -> None:
    path = await _some(c)
    for selector in (
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a",
        "metadata.name=missing",
        f"metadata.namespace={c.namespace}",
        "metadata.namespace=other",
        "metadata.name=a,metadata.name=b",
        "metadata.name=a,spec.owner=me",
        "spec.owner=me",
        "spec.owner!=me",
        "spec.owner=",
        "spec.size=2",
        "spec.size=x",
        "spec.enabled=true",
        "spec.colour=red",
        "metadata.labels=x",
        "metadata.uid=x",
        "status.phase=x",
        "metadata.name",
        "metadata.name%20in%20(a)",
        "=a",
        ",",
        "metadata.name=a%5C,b",
        "metadata.name=a%5Cb",
        "metadata.name%3Ea",
    ):
        await c.get(f"{path}?fieldSelector={selector}", accept=PARTIAL_LIST)
    for selector in ("metadata.namespace=x", "metadata.name=x", "spec.owner=x"):
        await c.get(f"{GAUGES_PATH}?fieldSelector={selector}")


@story
async def lists_come_in_pieces(c: Caller) -> None:
    path = await _some(c)
    page = (await c.get(f"{path}?limit=2")).json
    await c.post(path, widget("ab"))
    await c.delete(f"{path}/c")
    token = page["metadata"]["continue"]
    second = (await c.get(f"{path}?limit=2&continue={token}")).json
    await c.get(f"{path}?continue={second['metadata']['continue']}")
    await c.get(f"{path}?continue={token}")
    await c.get(f"{path}?limit=2")
    for query in (
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=100",
        "limit=6",
        "limit=5",
        "continue=nonsense",
        "continue=" + "bm9uc2Vuc2U",
        f"continue={token}&resourceVersion=0",
        f"continue={token}&resourceVersion=5",
        f"continue={token}&resourceVersionMatch=Exact",
        "limit=2&labelSelector=tier",
        "limit=2&fieldSelector=spec.owner=me",
        "limit=1&fieldSelector=spec.owner=me",
        "limit=2&fieldSelector=metadata.name=a",
        "limit=2&resourceVersion=0",
    ):
        await c.get(f"{path}?{query}", accept=PARTIAL_LIST)
    await c.get(f"{path}?limit=2", accept=TABLE)
    await c.get(f"{in_namespace(c.other)}?limit=2")


@story
async def lists_are_of_a_revision(c: Caller) -> None:
    path = in_namespace(c.namespace)
    first = (await c.post(path, widget("a"))).json["metadata"]["resourceVersion"]
    second = (await c.post(path, widget("b"))).json["metadata"]["resourceVersion"]
    await c.delete(f"{path}/a")
    # A consistent list waits until the reference's cache has the deletion, which "0" does not.
    await c.get(path)
    for query in (
        "resourceVersion=0",
        f"resourceVersion={first}",
        f"resourceVersion={second}",
        f"resourceVersion={first}&resourceVersionMatch=Exact",
        f"resourceVersion={second}&resourceVersionMatch=Exact",
        f"resourceVersion={first}&resourceVersionMatch=NotOlderThan",
        f"resourceVersion={first}&limit=1",
        f"resourceVersion={second}&limit=1",
        f"resourceVersion={second}&limit=1&fieldSelector=metadata.name=a",
        f"resourceVersion={second}&limit=1&resourceVersionMatch=Exact&fieldSelector=metadata.name=a",
        f"resourceVersion={second}&limit=1&resourceVersionMatch=NotOlderThan",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        f"resourceVersion={first}&resourceVersionMatch=Other",
        "sendInitialEvents=true&resourceVersionMatch=Foo",
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=1.5",
        f"resourceVersion={first}&sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "allowWatchBookmarks=true",
        "timeoutSeconds=5",
        "timeoutSeconds=x",
        "watch=false",
        "watch=x&timeoutSeconds=1",
    ):
        await c.get(f"{path}?{query}")


@story
async def answers_take_other_forms(c: Caller) -> None:
    path = await _some(c)
    body = widget(
        "full",
        enabled=False,
        ratio=1.5,
        since="2020-01-01T00:00:00Z",
        words=["x", "y"],
        limits={"a": 1, "b": 2},
    )
    await c.post(path, body)
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]
    await c.patch(f"{path}/full/status", {"status": {"phase": "Fine", "conditions": conditions}})
    for target in (path, f"{path}/full", f"{path}/missing", f"{path}/full/status", f"{path}?limit=1"):
        for accept in (TABLE, TABLE_BETA, PARTIAL, PARTIAL_LIST):
            await c.get(target, accept=accept)
    for include in ("None", "Object", "Metadata", "Other", ""):
        await c.get(f"{path}/full?includeObject={include}", accept=TABLE)
    for accept in (
        "*/*",
        "",
        "application/*",
        "text/html",
        "application/yaml",
        "text/html, application/json;q=0.5",
        "application/json;as=Table;v=v2;g=meta.k8s.io, application/json",
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
        "application/json;as=Table;g=meta.k8s.io",
        "application/json;pretty=1",
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf",
        "application/vnd.kubernetes.protobuf,application/json",
    ):
        await c.get(f"{path}/a", accept=accept)
    await c.call("GET", f"{path}/a", accept="application/json", user_agent="Mozilla/5.0")
    await c.post(f"{path}?dryRun=All", widget("z"), accept=TABLE)
    await c.post(f"{path}?dryRun=All", widget("z"), accept=PARTIAL)
    await c.patch(f"{path}/a", {"spec": {"size": 7}}, accept=TABLE)
    await c.delete(f"{path}/a", accept=TABLE)
    await c.delete(f"{path}/b", accept=PARTIAL)
    await c.delete(path, accept=TABLE)
    name = f"{c.namespace}-a"
    await c.post(GAUGES_PATH, gauge(name))
    await c.get(f"{GAUGES_PATH}/{name}", accept=TABLE)


@story
async def all_namespaces_are_listed(c: Caller) -> None:
    first, second = in_namespace(c.namespace), in_namespace(c.other)
    labels = {"story": c.namespace}
    await c.post(second, widget("a", meta={"labels": labels}))
    await c.post(first, widget("b", meta={"labels": labels}))
    await c.post(first, widget("a", meta={"labels": labels}))
    everywhere = f"/apis/test.dev/v1/widgets?labelSelector=story={c.namespace}"
    await c.get(everywhere)
    await c.get(everywhere + "&limit=1")
    await c.get(everywhere + "&fieldSelector=metadata.name=a")
    await c.get(everywhere + f"&fieldSelector=metadata.namespace={c.other}")
    await c.get(everywhere, accept=TABLE)
    await c.delete(everywhere)


@story
async def requests_that_are_seldom_made(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", meta={"labels": {"x": "1"}}))
    fields = ("fieldSelector=%ff", "fieldSelector=metadata.name%3D%ff")
    watches = ("", "&watch=true&timeoutSeconds=1")
    await c.get_together([f"{path}?{field}{watch}" for field in fields for watch in watches])
    for rest in (
        "namespaces//widgets?labelSelector=nobody",
        "namespaces//widgets/a",
        "namespaces//widgets/a/status",
        "/namespaces/default/widgets",
        f"namespaces/{c.namespace}//widgets",
        f"namespaces/{c.namespace}/widgets//a",
        f"namespaces/{c.namespace}/widgets/a//status",
        f"namespaces/{c.namespace}/widgets/",
        f"namespaces/{c.namespace}/widgets/a/",
    ):
        await c.get(f"/apis/test.dev/v1/{rest}")
    await c.post("/apis/test.dev/v1/namespaces//widgets", widget("w"))
    await c.delete("/apis/test.dev/v1/namespaces//widgets?labelSelector=nobody")
    await c.delete("/apis/test.dev/v1/namespaces//widgets/a")
    namespace = f"watch/namespaces/{c.namespace}/widgets"
    await c.call_together(
        [
            Ask(
                method,
                f"/apis/test.dev/v1/{rest}?timeoutSeconds=1&labelSelector=x",
                widget("w") if method in ("POST", "PUT") else None,
            )
            for method in ("POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
            for rest in (namespace, f"{namespace}/a", "watch/widgets")
        ]
    )
    queries = (
        "limit=x",
        "timeoutSeconds=x",
        "labelSelector=%21%21",
        "fieldSelector=spec.nothing=1",
        "resourceVersion=x",
        "sendInitialEvents=true",
        "timeoutSeconds=1",
    )
    for accept in (
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
    ):
        watches = ("watch=true&", "")
        targets = [f"{path}?{watch}{query}" for query in queries for watch in watches]
        await c.get_together(targets, accept=accept)
    for verb in ("POST", "PUT", "DELETE", "PATCH"):
        await c.call(verb, f"{path}/a?fieldValidation=x&dryRun=x&propagationPolicy=x", accept="text/html")
