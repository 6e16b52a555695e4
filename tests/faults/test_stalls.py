"""Bodies made to hurt: each is refused or taken in time, and nobody else has to wait for it.

What the process computes between two turns of the loop is measured in processor time, so that a loaded
machine fails nothing. All of its threads count: one that works in C, or collects garbage, keeps the loop too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from certwright.admission import certificate_kinds
from certwright.app.loop import collect_rarely, freeze_heap
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Identity, Request, Response
from conformance.kinds import an_object, crd
from support.memory import peak_kb, reset_peak

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))
_JSON, _YAML = "application/json", "application/yaml"
_JSON_PATCH, _APPLY = "application/json-patch+json", "application/apply-patch+yaml"
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
# Where the project's figures come from each stays below 0.1 s, and `fixed_work` takes 9 ms of processor time.
# Other machines are slower, and what is busy beside them makes them slower still.
_LONGEST_TURN_S = 0.3
_FIXED_WORK_S = 0.009
_MOST_GROWTH_KB = 400_000
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PLACES = {
    "built-in": ("/api/v1/namespaces/default/configmaps", b'{"apiVersion":"v1","kind":"ConfigMap"', b"data"),
    "custom": (
        "/apis/test.dev/v1/namespaces/default/things",
        b'{"apiVersion":"test.dev/v1","kind":"Thing"',
        b"spec",
    ),
}

Ask = Callable[..., Any]
pytestmark = pytest.mark.every(6)


@pytest.fixture(scope="module", autouse=True)
def _kept() -> None:
    """As `serve` does: what lives as long as the server is not looked at again and again."""
    gc.collect()
    freeze_heap()


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One with a kind that takes anything."""
    made = ApiServer(
        MemoryStore(), SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds()
    )
    await made.start([crd("things", an_object(spec=_ANY))])
    usual = gc.get_threshold()
    collect_rarely()
    yield made
    gc.set_threshold(*usual)
    await made.close()


def fixed_work() -> float:
    """How long something takes that is the same in every run, in seconds of processor time."""
    begin = time.process_time()
    for _ in range(10):
        json.loads(json.dumps([{"a": str(number)} for number in range(2_000)]))
    return time.process_time() - begin


def allowed_s() -> float:
    """How long the loop may be kept on this machine, as it is at this moment."""
    slowness = min(fixed_work() for _ in range(5)) / _FIXED_WORK_S
    return _LONGEST_TURN_S * max(1.0, slowness)


async def ask(server: ApiServer, method: str, target: str, body: bytes = b"", media: str = _JSON) -> Response:
    """The answer, if it was given without keeping the loop, or taking much memory."""
    longest, over = 0.0, False

    async def beat() -> None:
        nonlocal longest
        last = time.process_time()
        while not over:
            await asyncio.sleep(0)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0)
    before = reset_peak()
    response = await server.handle(Request(method, target, {"content-type": media}, body, ADMIN))
    if response.stream is not None:
        async for _ in response.stream:
            continue
    over = True
    await heart
    grown = peak_kb() - before
    if longest >= _LONGEST_TURN_S:
        assert longest < allowed_s(), f"the loop was kept for {longest:.3f} s: {response.status}"
    assert grown < _MOST_GROWTH_KB, f"{grown} kB"
    if response.status >= 400:
        status = json.loads(response.body)
        assert status["kind"] == "Status"
        # A 500 without a reason is what Kubernetes says of an apply that has not the form of its kind.
        assert response.status < 500 or "reason" not in status, response.body[:500]
    return response


def joined(count: int, item: bytes) -> bytes:
    """A list of the same."""
    return b"[%b]" % b",".join([item] * count)


def members(count: int, value: bytes = b'"a"') -> bytes:
    """An object with so many fields."""
    return b"{%b}" % b",".join(b'"k%d":%b' % (number, value) for number in range(count))


VALUES = {
    "lists in lists": b"[" * 1_000_000,
    "lists in lists, closed": b"[" * 50_000 + b"]" * 50_000,
    "objects in objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "a long number": b"9" * 1_000_000,
    "long numbers": joined(300, b"9" * 4000),
    "large numbers": joined(200_000, b"1e300"),
    "infinity": b"1e999",
    "many numbers": joined(700_000, b"1"),
    "many objects": joined(400_000, b"{}"),
    "many fields": members(100_000),
    "one field, many times": b"{%b}" % b",".join([b'"k":"a"'] * 150_000),
    "not UTF-8": b'{"a":"%b"}' % (b"\xff\xfe" * 500_000),
    "halves of pairs": b'{"a":"%b"}' % (b"\\ud800" * 200_000),
    "cut off": b'{"a":"' + b"x" * 1_000_000,
    "cut off late": b"[" + b",".join([b'{"a":"b"}'] * 100_000),
    "NULs": b"\0" * 1_000_000,
}
_BOMB = b"\n  ".join(
    [b"\n  a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    + [b"a%d: &a%d [%b]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)]
)
YAML_VALUES = {
    "a bomb": _BOMB,
    "a ring": b"&a {<<: *a}",
    "lists in lists": b"[" * 500_000,
    "dashes": b"- " * 300_000,
    "anchors": b"[%b]" % b",".join(b"&a%d x" % number for number in range(50_000)),
    "many": joined(100_000, b"x"),
    "one key, many times": b"\n" + b"  k: x\n" * 50_000,
    "a long number": b"0x" + b"f" * 500_000,
    "base 60": b"9:" * 50_000 + b"9",
    "a tag": b"!!python/object/apply:os.system ['true']",
    "NULs": b"\0" * 1000,
}


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("name", VALUES)
async def test_a_json_body_keeps_nobody_waiting(server: ApiServer, place: str, name: str) -> None:
    path, head, field = _PLACES[place]
    body = b'%b,"metadata":{"name":"x"},"%b":%b}' % (head, field, VALUES[name])
    await ask(server, "POST", path, body)
    await ask(server, "POST", path, b'%b,"metadata":{"name":"x"}}' % head)
    media = _MERGE if place == "custom" else _STRATEGIC
    await ask(server, "PATCH", f"{path}/x", b'{"%b":%b}' % (field, VALUES[name]), media)


@pytest.mark.parametrize("name", YAML_VALUES)
async def test_a_yaml_body_keeps_nobody_waiting(server: ApiServer, name: str) -> None:
    text = b"apiVersion: test.dev/v1\nkind: Thing\nmetadata: {name: x}\nspec: " + YAML_VALUES[name]
    path = _PLACES["custom"][0]
    await ask(server, "POST", path, text, _YAML)
    await ask(server, "PATCH", f"{path}/y?fieldManager=me", text, _APPLY)


METADATA = {
    "labels": members(40_000, b'"!"'),
    "annotations": members(40_000, b'"%b"' % (b"x" * 10)),
    "finalizers": joined(40_000, b'"no"'),
    "ownerReferences": joined(10_000, b'{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}'),
    "unknown": b"1," + members(60_000, b"1")[1:-1],
    "generateName": b'"%b"' % (b"y." * 200_000),
}


@pytest.mark.parametrize("name", METADATA)
async def test_metadata_keeps_nobody_waiting(server: ApiServer, name: str) -> None:
    path, head, _ = _PLACES["custom"]
    response = await ask(
        server, "POST", path, b'%b,"metadata":{"name":"x","%b":%b}}' % (head, name.encode(), METADATA[name])
    )
    assert len(response.headers.get("warning", "")) < 100_000
    assert len(response.body) < 4_000_000


PATCHES: dict[str, list[dict[str, Any]]] = {
    "copies of itself": [{"op": "copy", "from": "/spec", "path": f"/spec/k{n}"} for n in range(30)],
    "copies": [
        {"op": "add", "path": "/spec/a", "value": "v" * 1_000_000},
        *({"op": "copy", "from": "/spec/a", "path": f"/spec/k{n}"} for n in range(5_000)),
    ],
    "a far index": [{"op": "add", "path": "/spec/list/99999999999999999999", "value": 1}],
    "a long pointer": [{"op": "add", "path": "/a" * 500_000, "value": 1}],
    "ever deeper": [{"op": "add", "path": "/spec" + "/a" * n, "value": {"a": {}}} for n in range(1, 900)],
    "nonsense": [{"op": None, "path": None, "from": [], "value": {}}],
    "the whole into itself": [{"op": "copy", "from": "", "path": "/spec/me"}] * 25,
}


@pytest.mark.parametrize("name", PATCHES)
async def test_a_json_patch_keeps_nobody_waiting(server: ApiServer, name: str) -> None:
    path, head, _ = _PLACES["custom"]
    made = await ask(server, "POST", path, b'%b,"metadata":{"name":"x"},"spec":{"a":{},"list":[]}}' % head)
    assert made.status == 201
    response = await ask(server, "PATCH", f"{path}/x", json.dumps(PATCHES[name]).encode(), _JSON_PATCH)
    assert response.status in (200, 422), response.body[:500]


PATTERNS = ["(a+)+$", "^(a|a)*$", "(x+x+)+y", "((a{1,100}){1,100}){1,100}", "(.*)*!!"]
RULES = [
    "self.l.all(x, self.l.exists(y, y == x))",
    "self.l.map(x, self.l.map(y, y)).size() > 0",
    "self.l.all(x, self.s.matches('(a+)+$'))",
    "(" * 3000 + "true" + ")" * 3000,
]


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_pattern_that_explodes_keeps_nobody_waiting(server: ApiServer, pattern: str) -> None:
    text = {"type": "string", "pattern": pattern}
    await check_kind(server, an_object(s=text), {"s": "a" * 100_000 + "!"})


@pytest.mark.parametrize("rule", RULES)
async def test_a_dear_rule_keeps_nobody_waiting(server: ApiServer, rule: str) -> None:
    texts = {"type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 50}}
    schema = an_object(l=texts, s={"type": "string", "maxLength": 50_000})
    schema["x-kubernetes-validations"] = [{"rule": rule}]
    await check_kind(server, schema, {"l": [f"{n:049}" for n in range(300)], "s": "a" * 40_000})


async def check_kind(server: ApiServer, schema: dict[str, Any], spec: dict[str, Any]) -> None:
    """Define a kind and make one of it; either may be refused."""
    definition = crd("traps", an_object(spec=schema))
    await ask(
        server,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        json.dumps(definition).encode(),
    )
    trap = {"apiVersion": "test.dev/v1", "kind": "Trap", "metadata": {"name": "x"}, "spec": spec}
    answer = await server.handle(Request("GET", "/apis/test.dev/v1/traps", user=ADMIN))
    if answer.status == 200:
        await ask(server, "POST", "/apis/test.dev/v1/namespaces/default/traps", json.dumps(trap).encode())


QUERIES = [
    "labelSelector=" + "a%2C" * 15_000,
    "labelSelector=" + "(" * 60_000,
    "labelSelector=a+in+(" + ",".join(f"x{n}" for n in range(8_000)) + ")",
    "fieldSelector=" + "metadata.name%3Da%2C" * 3_000,
    "fieldSelector=" + "%5C" * 20_000,
    "continue=" + "A" * 60_000,
    "continue=%00%ff",
    "limit=99999999999999999999999",
    "resourceVersion=99999999999999999999999999&resourceVersionMatch=Exact",
    "timeoutSeconds=1e400",
    "pretty=" + "x" * 30_000,
    "a&" * 30_000,
    "%00=%00&;;;",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:25])
async def test_a_query_keeps_nobody_waiting(server: ApiServer, query: str) -> None:
    for path, *_ in _PLACES.values():
        await ask(server, "GET", f"{path}?{query}")


def wide(count: int, field: dict[str, Any]) -> dict[str, Any]:
    """A schema of many fields."""
    return an_object(**{f"p{number}": field for number in range(count)})


def nested(depth: int, word: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema} if word == "items" else an_object(a=schema)
    return an_object(a=schema)


TEXT = {"type": "string", "maxLength": 10}
RULED = {"type": "object", "properties": {"s": TEXT, "l": {"type": "array", "maxItems": 9, "items": TEXT}}}
DEFINITIONS: dict[str, dict[str, Any]] = {
    "too many fields": wide(60_000, {"type": "string"}),
    "many fields": wide(19_000, {"type": "string", "description": "d" * 60}),
    "many enums": wide(19_000, {"type": "string", "enum": ["a", "b"]}),
    "too many defaults": wide(9_000, {"type": "object", "default": {"a": "b"}, "properties": {"a": TEXT}}),
    "many defaults": wide(3_000, {"type": "object", "default": {"a": "b"}, "properties": {"a": TEXT}}),
    "deep": nested(80, "properties"),
    "deep lists": nested(80, "items"),
    "a large enum": an_object(e={"type": "string", "enum": [f"v{n}" for n in range(200_000)]}),
    "a large default": an_object(p={**_ANY, "default": {f"k{n}": "v" for n in range(80_000)}}),
    "a wrong default": an_object(
        p={"type": "array", "items": {"type": "string", "minLength": 3}, "default": ["x"] * 100_000}
    ),
    "many branches": {**an_object(x=TEXT), "anyOf": [{"required": ["x"]}] * 9_000},
    "too many required": {**an_object(x=TEXT), "required": ["x"] * 300_000},
    "many keys": an_object(
        l={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [f"k{n}" for n in range(4_000)],
            "items": {**wide(4_000, TEXT), "required": [f"p{n}" for n in range(4_000)]},
        }
    ),
    "a ring": {"$ref": "#"},
    "mistakes": wide(15_000, {"type": "nonsense"}),
    "unknown words": {"type": "object", **{f"z{n}": 1 for n in range(100_000)}},
    "a long pattern": an_object(p={"type": "string", "pattern": "(a|b)" * 300_000}),
    "many patterns": an_object(
        **{f"p{n}": {"type": "string", "pattern": f"^[a-z]{{1,{n % 900 + 1}}}{n}$"} for n in range(9_000)}
    ),
}
RULES_OF_DEFINITIONS = {
    "many rules": [f"self.s != 'x{n}'" for n in range(1_000)],
    "too many rules": [f"self.s != 'x{n}'" for n in range(30_000)],
    "a long rule": [" || ".join(f"self.s == 'x{n}'" for n in range(20_000))],
    "a long list": ["self.s in [" + ",".join(f"'x{n}'" for n in range(100_000)) + "]"],
    "nots": ["!" * 100_001 + "true"],
    "sums": ["+".join(["1"] * 100_000) + " > 0"],
    "conditions": ["true ? " * 3_000 + "true" + " : false" * 3_000],
    "walks in walks": ["".join(f"self.l.all(x{n}, " for n in range(60)) + "true" + ")" * 60],
    "names for twice as much": [
        "cel.bind(v0, 'aaaaaaaaaa', "
        + "".join(f"cel.bind(v{n + 1}, v{n}+v{n}, " for n in range(25))
        + "v25.size() > 0"
        + ")" * 26
    ],
    "a pattern in a rule": ["self.s.matches('" + "(a|b)*" * 50_000 + "')"],
}


@pytest.mark.parametrize("name", DEFINITIONS)
async def test_a_definition_keeps_nobody_waiting(server: ApiServer, name: str) -> None:
    await check_definition(server, DEFINITIONS[name])


@pytest.mark.parametrize("name", RULES_OF_DEFINITIONS)
async def test_the_rules_of_a_definition_keep_nobody_waiting(server: ApiServer, name: str) -> None:
    rules = [{"rule": rule} for rule in RULES_OF_DEFINITIONS[name]]
    await check_definition(server, {**RULED, "x-kubernetes-validations": rules})


async def test_a_rule_on_an_object_of_thousands_of_fields_is_refused(server: ApiServer) -> None:
    schema = {**wide(15_000, TEXT), "x-kubernetes-validations": [{"rule": "self.p1 != 'a'"}]}
    await check_definition(server, schema)


async def check_definition(server: ApiServer, schema: dict[str, Any]) -> None:
    """Define a kind, read and change the definition, make one of the kind, and take all away again."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    body = json.dumps(crd("traps", an_object(spec=schema))).encode()
    made = await ask(server, "POST", path, body)
    assert made.status in (201, 400, 422)
    if made.status != 201:
        return
    await ask(server, "PATCH", f"{path}/traps.test.dev", b'{"metadata":{"labels":{"a":"b"}}}', _MERGE)
    for document in ("/openapi/v2", "/openapi/v3/apis/test.dev/v1"):
        assert (await ask(server, "GET", document)).status == 200
    traps = "/apis/test.dev/v1/namespaces/default/traps"
    trap = b'{"apiVersion":"test.dev/v1","kind":"Trap","metadata":{"name":"x"},"spec":{"s":"a","x":"a"}}'
    await ask(server, "POST", traps, trap)
    await ask(server, "PATCH", f"{traps}/x?fieldManager=me&force=true", trap, _APPLY)
    await ask(server, "GET", traps)
    assert (await ask(server, "DELETE", f"{path}/traps.test.dev")).status == 200


@pytest.mark.parametrize("name", ["too many fields", "too many defaults", "too many required"])
async def test_a_schema_of_too_many_parts_is_refused_with_what_to_do(server: ApiServer, name: str) -> None:
    body = json.dumps(crd("traps", an_object(spec=DEFINITIONS[name]))).encode()
    answer = await ask(server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    (cause, *_) = json.loads(answer.body)["details"]["causes"]
    assert (answer.status, cause["reason"]) == (422, "FieldValueTooMany")
    assert cause["field"].endswith("openAPIV3Schema")
    assert "x-kubernetes-preserve-unknown-fields" in cause["message"]


@pytest.mark.parametrize(
    "query",
    ["labelSelector=" + "%2C".join(f"k{n}" for n in range(3_000)), "fieldSelector=" + "a%3Db%2C" * 3_000],
    ids=["labels", "one field many times"],
)
async def test_a_selector_has_a_thousand_terms_at_most_each_counted_once(
    server: ApiServer, query: str
) -> None:
    answer = await ask(server, "GET", f"{_PLACES['custom'][0]}?{query}")
    text = json.loads(answer.body)["message"]
    assert answer.status == 400
    assert ("at most 1000 terms" in text) == query.startswith("label")
