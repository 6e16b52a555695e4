"""Stories about how a request is understood: Accept, query parameters, paths and methods."""

from __future__ import annotations

import base64
import json

from conformance.compare import story
from conformance.kinds import CRDS, GAUGES_PATH, an_object, crd, gauge, in_namespace, widget
from conformance.peers import Caller
from conformance.story_reads import PARTIAL, PARTIAL_LIST, TABLE, TABLE_BETA
from conformance.story_schemas import defined

_PROTOBUF = "application/vnd.kubernetes.protobuf"


@story
async def what_is_accepted_is_negotiated(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    for accept in (
        "application/json;q=0.1, application/yaml;q=0.9",
        "application/json;q=0.5, application/yaml;q=0.5",
        "application/yaml, application/json",
        "application/json;q=x",
        "application/json;q=0",
        "application/json;q=0, application/yaml;q=0",
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        "application/json;as=Table",
        "application/json;as=Table;v=v1",
        "application/json;as=Table;g=meta.k8s.io;v=v1;q=0.9,application/json;q=0.8",
        "application/json;as=Table;g=meta.k8s.io;v=v1;q=0.8,application/json;q=0.9",
        "application/json;v=v1;g=meta.k8s.io",
        "application/json;g=other.io",
        "application/json;as=Table;v=v1;g=other.io",
        "application/json;as=;v=v1;g=meta.k8s.io",
        "application/json;stream=other",
        "application/json;pretty=0",
        "application/json;export=1",
        "application/json;unknown=parameter",
        "application/cbor",
        "application/cbor,application/json",
        "*/json",
        "text/*",
        "text/*, */*",
        "application/json;",
        ";",
        ",",
        ", application/json",
        "application/*;q=0.2,*/*;q=0.1",
        "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        f"{_PROTOBUF};as=Table;v=v1;g=meta.k8s.io",
        f"{_PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json",
        f"{_PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io",
    ):
        await c.get(f"{path}/a", accept=accept)
        await c.get(f"{path}/missing", accept=accept)
    for accept in ("application/json, */*", "application/json;stream=watch", "text/html", "text/html, */*"):
        await c.get(path, accept=accept)
        await c.get("/apis/test.dev/v1/nothings", accept=accept)
        if accept == "text/html":
            await c.get(f"{path}?watch=1", accept=accept)
            continue
        async with c.watch(path, accept=accept) as events:
            await events.opened()
            await events.take(1)


@story
async def a_list_is_not_an_object(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for kind in (PARTIAL, PARTIAL_LIST):
        await c.post(f"{path}?dryRun=All", widget("a"), accept=kind)
        await c.post(path, widget("a"), accept=kind)
        await c.put(f"{path}/missing", widget("a"), accept=kind)
        await c.patch(f"{path}/a", {"spec": {"size": 3}}, accept=kind)
        await c.get(path, accept=kind)
        await c.get(f"{path}?fieldSelector=metadata.name=a", accept=kind)
        await c.get(f"{path}?labelSelector=bad%20selector", accept=kind)
        await c.delete(f"{path}/missing", accept=kind)
        await c.delete(f"{path}/a", accept=kind)
        await c.get(path, accept=kind)
        await c.post(path, widget("a"), quiet=True)
        await c.delete(path, accept=kind)
        await c.get(CRDS, accept=kind) if kind == PARTIAL else None
        await c.get(f"{CRDS}/missing.test.dev", accept=kind)
    await c.get(f"{CRDS}/widgets.test.dev", accept=PARTIAL_LIST)
    await c.get(f"{CRDS}?limit=1&labelSelector=no=one", accept=PARTIAL_LIST)


@story
async def tables_include_what_is_asked_for(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    for include in ("None", "Object", "Metadata", "Other", "", "none"):
        await c.get(f"{path}?includeObject={include}", accept=TABLE)
        await c.get(f"{path}/a?includeObject={include}", accept=TABLE_BETA)
        await c.get(f"{path}?includeObject={include}")
        await c.get(f"{path}?includeObject={include}", accept=PARTIAL_LIST)
        await c.get(f"{path}/missing?includeObject={include}", accept=TABLE)
        await c.post(f"{path}?dryRun=All&includeObject={include}", widget("b"), accept=TABLE)
    await c.get(f"{path}?includeObject=None&includeObject=Object", accept=TABLE)
    await c.get(f"{in_namespace(c.other)}", accept=TABLE)
    name = f"{c.namespace}-g"
    await c.post(GAUGES_PATH, gauge(name), accept=TABLE)
    await c.get(f"{GAUGES_PATH}?fieldSelector=metadata.name={name}", accept=TABLE)


@story
async def query_parameters_are_read_leniently(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    for query in (
        "limit=1;continue=3",
        "limit=%25zz",
        "&&=&a",
        "limit=1&limit=x",
        "limit=x&limit=1",
        "limit=",
        "limit=+1",
        "limit=%201",
        "limit=9223372036854775807",
        "limit=9223372036854775808",
        "Limit=x",
        "labelSelector=",
        "labelSelector=x&labelSelector=y",
        "fieldSelector=&labelSelector=",
        "labelSelector=a%3Db&labelSelector=%25zz",
        "resourceVersion=00",
        "resourceVersion=%200",
        "timeoutSeconds=",
        "timeoutSeconds=-5",
        "allowWatchBookmarks=",
        "sendInitialEvents=",
        "sendInitialEvents=false",
        "watch=0",
        "watch=False",
        "watch=FALSE",
        "pretty",
        "x" * 2000,
        "a=%00",
        "a=%ff",
        "fieldSelector=metadata.name%3D%ff",
    ):
        await c.get(f"{path}?{query}", accept=PARTIAL_LIST)


@story
async def watches_are_asked_for_in_many_ways(c: Caller) -> None:
    path = in_namespace(c.namespace)
    queries = (
        "watch&timeoutSeconds=1",
        "watch=&timeoutSeconds=1",
        "watch=true&watch=false&timeoutSeconds=1",
        "watch=t&timeoutSeconds=1&limit=-1",
        "watch=yes&timeoutSeconds=1",
        "watch=true&timeoutSeconds=1&sendInitialEvents=0",
        "watch=true&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
        "watch=true&timeoutSeconds=1&allowWatchBookmarks=1&sendInitialEvents=1"
        "&resourceVersionMatch=NotOlderThan&resourceVersion=abc",
        "watch=true&includeObject=Other&timeoutSeconds=1",
    )
    await c.get_together([f"{path}?{query}" for query in queries])
    await c.get_together([f"{path}?{query}" for query in queries], accept=TABLE, user_agent="other/1")
    watch = "/apis/test.dev/v1/watch"
    await c.get_together(
        [
            f"{watch}/namespaces/{c.namespace}/widgets?timeoutSeconds=1",
            f"{watch}/{c.namespace}/widgets?timeoutSeconds=1",
            f"{watch}/namespaces/{c.namespace}/widgets/a?timeoutSeconds=1",
            f"{watch}/widgets?timeoutSeconds=1&labelSelector=no=one",
        ]
    )


def _token(**content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


@story
async def pages_go_on_with_selectors(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for name in ("a", "b", "c", "d", "e", "f"):
        labels = {"even": "yes"} if name in "bdf" else {"even": "no"}
        await c.post(path, widget(name, meta={"labels": labels}, owner="me" if name in "abcd" else "you"))
    for selector in (
        "labelSelector=even=yes",
        "labelSelector=even=no",
        "labelSelector=even",
        "fieldSelector=spec.owner=me",
        "fieldSelector=spec.owner=you",
        "fieldSelector=spec.owner=me&labelSelector=even=yes",
        "fieldSelector=metadata.name=d",
        "labelSelector=nobody",
    ):
        for limit in (1, 2, 3):
            token = ""
            for _ in range(4):
                answer = await c.get(f"{path}?{selector}&limit={limit}&continue={token}", accept=PARTIAL_LIST)
                token = answer.json["metadata"].get("continue", "")
                if not token:
                    break
    good = (await c.get(f"{path}?limit=2")).json["metadata"]["continue"]
    for query in (
        f"continue={good}&labelSelector=even=yes",
        f"continue={good}&labelSelector=bad%20one",
        f"continue={good}&limit=0",
        f"continue={good}&limit=x",
        f"continue={good}&resourceVersion=abc",
        f"continue={good[:-3]}",
        f"continue={good}x",
    ):
        await c.get(f"{path}?{query}", accept=PARTIAL_LIST)
    for content in (
        {"v": "meta.k8s.io/v1", "rv": -1, "start": "c\u0000"},
        {"v": "meta.k8s.io/v1", "rv": 0, "start": "c"},
        {"v": "meta.k8s.io/v2", "rv": 1, "start": "c"},
        {"v": "meta.k8s.io/v1", "rv": -1, "start": "../c"},
        {"v": "meta.k8s.io/v1", "rv": -1, "start": ""},
        {},
    ):
        await c.get(f"{path}?continue={_token(**content)}", accept=PARTIAL_LIST)


@story
async def built_in_kinds_do_what_is_declared(c: Caller) -> None:
    target = f"{CRDS}/widgets.test.dev"
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "HEAD", "FOO"):
        await c.call(method, CRDS)
    for method in ("POST", "OPTIONS", "TRACE", "HEAD", "FOO"):
        await c.call(method, target)
        await c.call(method, f"{target}/status")
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        await c.call(method, f"{target}/nothing")
        await c.call(method, f"{target}/status/more")
        await c.call(method, "/apis/apiextensions.k8s.io/v1/nothings")
        await c.call(method, "/apis/apiextensions.k8s.io/v1/namespaces/x/customresourcedefinitions")
        await c.call(method, "/apis/apiextensions.k8s.io/v9/customresourcedefinitions")
    await c.call("DELETE", f"{target}/status")
    await c.get(f"{CRDS}/?limit=1", accept=PARTIAL_LIST, quiet=True)
    assert (await c.get(f"{target}/", accept=PARTIAL, quiet=True)).status == 200
    await c.get(f"{target}?resourceVersion=abc", accept=PARTIAL)
    await c.get(f"{CRDS}/UPPER")
    await c.get(f"{CRDS}/a%2Fb")
    await c.get(f"{CRDS}?fieldSelector=spec.group=test.dev")
    await c.get(f"{CRDS}?fieldSelector=metadata.name=missing", accept=TABLE)
    await c.get(f"{CRDS}?labelSelector=no=one")
    await c.get(f"{CRDS}?labelSelector=no=one", accept=PARTIAL_LIST)
    await c.get(f"{CRDS}?watch=1&timeoutSeconds=x")
    await c.get(f"{CRDS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=missing")


@story
async def paths_are_written_in_many_ways(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    for target in (
        f"{path}//",
        f"{path}//a",
        f"{path}/a//",
        f"{path}/%61",
        f"{path}/a%20",
        f"{path}/a/status/",
        f"{path}/a/scale/",
        f"{path}/a/scale/x",
        f"{path}/a?",
        f"{path}?",
        "/apis/test.dev/v1/namespaces//widgets/a",
        "/apis/test.dev/v1/NAMESPACES/x/widgets",
        "/apis/test.dev/V1/widgets",
        "/apis//v1/widgets",
        "/apis/test.dev//widgets",
    ):
        await c.get(target)


_PATHS = (
    ".spec.list[-1:]", ".spec.list[0:2]", ".spec.list[:2]", ".spec.list[1:]", ".spec.list[0:]",
    ".spec.list[0:4:2]", ".spec.list[::2]", ".spec.list[::-1]", ".spec.list[-2:-1]", ".spec.list[0,1]",
    ".spec.list[5]", ".spec.list[-9]", ".spec.list[2:1]", ".spec.list[1:1]", ".spec.list[]",
    ".spec.list[*]", ".spec.list[:]", ".spec.list[-1]", ".spec['list','map']", ".spec['map'].b", "..word",
    ".spec..ok", ".spec.items..n", ".spec.map['a.b']", ".spec.map['a\\.b']", ".spec.map.a\\.b",
    ".spec.items[?(@.type)].n", ".spec.list[?(@)]", ".spec.items[?(2==@.n)].type",
    '.spec.items[?(@.type=="Ready")].n', ".spec.items[?(@.type=='Ready')].n",
    '.spec.items[?(@.type == "Ready")].n', '.spec.items[?(@.type!="Ready")].n',
    ".spec.items[?(@.n>1)].type", ".spec.items[?(@.n>=2)].type", ".spec.items[?(@.n<2)].type",
    ".spec.items[?(@.n<=1)].type", '.spec.items[?(@.n=="1")].type', ".spec.items[?(@.ok==true)].type",
    ".spec.items[?(@.ok<true)].type", ".spec.items[?(@.deep.x==1)].type", ".spec.items[?(@.missing)].n",
    ".spec.items[?(@.type=='a)b')].n", ".spec.items[?(@.n[0])].n", ".spec.items[0].deep", ".spec.items",
    ".spec.map", ".spec.word", ".spec.n", ".spec.f", ".spec.big", ".spec.small", ".spec.yes",
    ".spec.none", ".spec.word[0]", ".spec.word.x", ".spec.word[*]", ".spec.n[*]", ".spec.missing[0]",
    ".spec.list.a", ".", ".spec.", ".spec.[0]", ".spec .word", ".spec.word 5", ".spec.word true",
    ".spec.word range", ".spec.word end", ".spec.word'x'", ".spec.word@", ".spec$.word", ".spec.list [0]",
    ".spec.word}x", ".spec.items[0].deep.y.*", ".*.word", "...word", ".spec.when",
    ".spec.items[?(@.n==1.0)].type", ".spec.items[?(@.f==1.5)].type",
    '.spec.items[?(@.type=="\\u0052eady")].n', ".spec['word']", ".spec.html", ".spec.mid",
    ".spec.items[?(@.type=='x' || @.n==1)].n", ".spec.list[+1]", ".spec.list[1:2:1]", ".spec.list[0:9]",
    ".spec.list[-1:0]", ".spec.list[:-1]", ".spec.list[::0]", ".spec.list[0::3]", ".spec.list[0 , 1]",
)  # fmt: skip
_INVALID_PATHS = (
    '.spec["word"]', ".spec.list[", ".spec.list[x]", ".spec.items[(@.length-1)]",
    '.spec.items[?@.type=="Ready"]', ".spec.items[?(@.type", '.spec.items[?(@.a=="b" && @.c=="d")]',
    ".spec....word", ".spec.word!", ".spec[' word ']x~", ".spec.list[--1]", ".spec.list[1:2:3:4]",
    ".spec.items[?(@.n==)]", ".spec.items[?(@.n=='x)]", '.spec["a","b"]', ".spec.word\n",
    ".spec.list[99999999999999999999]", ".spec.word'", ".spec.items[?(@.type=='\\q')]", ".spec.list[-]",
)  # fmt: skip
_CELLS_OF: tuple[dict[str, object], ...] = (
    {},
    {
        "list": ["p", 2, None, {"b": "<x>", "a": 1.5}],
        "map": {"b": "&", "a.b": "q", "a": {"b": "r"}, "a\u2028": 1},
        "items": [
            {"type": "Ready", "n": 1, "deep": {"z": 1, "y": [True]}},
            {"type": "x", "n": 2, "ok": True, "f": 1.5},
        ],
        "html": {"a": "<&>"},
        "when": "2020-01-01T00:00:00Z",
    }
    | {
        "word": "w",
        "n": 7,
        "f": 1.5,
        "big": 1e21,
        "small": 1e-7,
        "mid": 1234567.5,
        "yes": True,
        "none": None,
    },
    {"list": [], "map": {}, "items": {}, "word": "", "n": 0, "f": -0.5, "big": -1e300, "yes": False},
    {"list": "text", "map": [1], "items": [1, "a", None, [2]], "word": {"x": 1}, "n": "5", "when": 5},
    {"when": "x"},
)


@story
async def printer_columns_show_what_their_paths_find(c: Caller) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for number, kind in enumerate(("string", "integer", "number", "boolean", "date")):
        paths = _PATHS if kind == "string" else _PATHS[44:60]
        definition = crd("cells", an_object(spec=free), kind="Cell", group=f"cells{number}.dev")
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
            {"name": f"C{index}", "type": kind, "jsonPath": path} for index, path in enumerate(paths)
        ]
        async with defined(c, definition) as cells:
            for index, spec in enumerate(_CELLS_OF):
                head = {
                    "apiVersion": f"cells{number}.dev/v1",
                    "kind": "Cell",
                    "metadata": {"name": f"a{index}"},
                }
                await c.post(cells, {**head, "spec": spec}, quiet=True)
            await c.get(cells, accept=TABLE)


@story
async def a_column_that_cannot_be_shown_is_left_out(c: Caller) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for number, path in enumerate(_INVALID_PATHS):
        definition = crd("cells", an_object(spec=free), kind="Cell", group=f"columns{number}.dev")
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
            {"name": "A", "type": "string", "jsonPath": ".spec.word"},
            {"name": "B", "type": "string", "jsonPath": path},
            {"name": "C", "type": "string", "jsonPath": ".spec.word"},
        ]
        await c.post(f"{CRDS}?dryRun=All", definition)
        if number < 3:
            async with defined(c, definition) as cells:
                await c.get(cells, accept=TABLE)
