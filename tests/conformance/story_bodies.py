"""Stories about bodies: JSON and YAML that is well formed, nearly so, or not at all."""

from __future__ import annotations

import json

from conformance.compare import story
from conformance.kinds import in_namespace, widget
from conformance.peers import Caller

_HEAD = b'{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1'
_NOT_JSON: tuple[bytes, ...] = (
    b" ",
    b"}",
    b"{]",
    b"{,",
    b"{'a':1}",
    b'{"a"',
    b'{"a" 1}',
    b'{"a":}',
    b'{"a":1,}',
    b'{"a":1 "b":2}',
    b'{"a":[1,]}',
    b'{"a":[1 2]}',
    b'{"a":[,]}',
    b'{"a":tru}',
    b'{"a":True}',
    b'{"a":nul',
    b'{"a":-',
    b'{"a":1.',
    b'{"a":"\\u12',
    b'{"a":fals0}',
    b'{"a":01}',
    b'{"a":-}',
    b'{"a":+1}',
    b'{"a":1.}',
    b'{"a":1.e5}',
    b'{"a":1e}',
    b'{"a":.5}',
    b'{"a":NaN}',
    b'{"a":"x',
    b'{"a":"x\n"}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12g4"}',
    b'{"a":1}}',
    b'{"a":1} x',
    b"\xef\xbb\xbf{}",
    b"// note\n{}",
    "{“a”:1}".encode(),
)
_ODD_JSON: tuple[bytes, ...] = (
    _HEAD + b',"note":"\xff\xfe"}}',
    _HEAD + b',"note":"\\ud800"}}',
    _HEAD + b',"note":"\\ud83d\\ude00 \\u0000"}}',
    _HEAD + b',"free":{"a":1e2,"b":1.0,"c":-0,"d":-0.0,"f":1e21,"g":1.5e-7}}}',
    _HEAD + b',"free":{"\\u0061":1,"a":2,"A":3}}}',
    _HEAD + b'},"Kind":"Other","KIND":"x"}',
    b'{"kind":"Widget","apiVersion":"test.dev/v1","kind":"Gadget","metadata":{"name":"a"}}',
    b'{"apiVersion":null,"kind":null}',
    b'{"apiVersion":"a/b/c","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}',
    b'{"apiVersion":"test.dev/v1","kind":"WidgetList","items":[]}',
)


@story
async def bodies_that_are_not_json(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    for body in _NOT_JSON:
        await c.post(f"{path}?dryRun=All", body)
        await c.patch(f"{path}/a?dryRun=All", body, "merge")
        await c.patch(f"{path}/a?dryRun=All&fieldValidation=Ignore", body, "merge")
        await c.patch(f"{path}/a?dryRun=All", body, "json")
        await c.delete(f"{path}/missing", body)


@story
async def bodies_that_are_odd_json(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for body in _ODD_JSON:
        for strictness in ("Strict", "Warn", "Ignore"):
            await c.post(f"{path}?dryRun=All&fieldValidation={strictness}", body)


_WIDGET = "apiVersion: test.dev/v1\nkind: Widget\nmetadata:\n  name: ya\n"
_YAML: tuple[str, ...] = (
    "",
    "---\n",
    "# only a note\n",
    "a",
    "- a\n",
    "null",
    "5",
    "{}",
    "a: b\n",
    "kind: 5\napiVersion: v1\n",
    _WIDGET + "spec:\n  size: 3\n---\nkind: Other\n",
    "---\n" + _WIDGET + "spec: {size: 3}\n...\n",
    "%YAML 1.1\n---\n" + _WIDGET + "spec: {size: 3}\n",
    _WIDGET + "spec:\n  size: 3\n  note: yes\n",
    _WIDGET + "spec:\n  size: 3\n  note: 'yes'\n  enabled: on\n",
    _WIDGET + "spec:\n  size: 0x10\n  owner: ~\n",
    _WIDGET + "spec:\n  size: 1_000\n",
    _WIDGET + "spec:\n  size: 010\n",
    _WIDGET + "spec:\n  size: 1e1\n  ratio: .5\n",
    _WIDGET + "spec:\n  size: 3\n  since: 2020-01-01T00:00:00Z\n",
    _WIDGET + "spec:\n  size: 3\n  note: 2020-01-01\n",
    _WIDGET + "spec:\n  size: 3\n  size: 4\n  note: a\n  note: b\n",
    _WIDGET + "spec:\n  size: 3\n  free:\n    a: &x {b: 1}\n    c: *x\n    <<: *x\n",
    _WIDGET + "spec:\n  size: 3\n  free:\n    1: a\n    true: b\n    1.5: c\n",
    _WIDGET + "spec:\n  size: 3\n  note: |\n    two\n    lines\n",
    _WIDGET + 'spec:\n  size: 3\n  note: "\\u00e9\\n"\n',
    json.dumps(widget("ya")),
    '{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"size":2}}',
)


@story
async def bodies_in_yaml(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for text in _YAML:
        for strictness in ("Strict", "Warn"):
            target = f"{path}?dryRun=All&fieldValidation={strictness}"
            await c.post(target, text.encode(), content_type="application/yaml")
    await c.post(path, widget("ya"))
    await c.delete(f"{path}/ya?dryRun=All", b"propagationPolicy: Whatever\n", content_type="application/yaml")
    await c.delete(f"{path}/ya?dryRun=All", b"dryRun: [All]\n", content_type="application/yaml")
    await c.delete(f"{path}/ya?dryRun=All", b"kind: Widget\n", content_type="application/yaml")


@story
async def patches_name_fields_twice(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    merges = (
        b'{"spec":{"size":3,"size":4},"spec":{"size":5}}',
        b'{"spec":{"free":{"a":1,"a":2},"size":3},"metadata":{"labels":{"x":"1","x":"2"}},"zzz":1,"zzz":2}',
        b'{"spec":{"parts":[{"name":"a","name":"b"}],"zzz":1}}',
    )
    operations = (
        b'[{"op":"add","op":"replace","path":"/spec/size","value":2}]',
        b'[{"op":"add","path":"/spec/size","value":2,"more":1,"Value":3}]',
        b'[{"op":"add","path":"/spec/zzz","value":{"a":1}}]',
    )
    for strictness in ("Strict", "Warn", "Ignore"):
        target = f"{path}/a?dryRun=All&fieldValidation={strictness}"
        for body in merges:
            await c.patch(target, body, "merge")
        for body in operations:
            await c.patch(target, body, "json")
