"""The manifest reader and the YAML writer, with kubectl as the judge of what YAML means."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.manifests import (
    Document,
    DocumentError,
    read_documents,
    read_first,
    read_value,
    write_yaml,
)
from certwright.kube.api.yaml_codec import MAX_DEPTH
from support.real import require

HEAD = "apiVersion: v1\nkind: T\n"


def _documents(text: str | bytes) -> list[dict[str, Any]]:
    documents = list(read_documents(text, source="f.yaml"))
    assert all(isinstance(item, Document) for item in documents), documents
    return [item.content for item in documents if isinstance(item, Document)]


def _error(text: str | bytes) -> DocumentError:
    (document,) = read_documents(text, source="f.yaml")
    assert isinstance(document, DocumentError), document
    return document


def _value(text: str) -> Any:
    return _documents(f"{HEAD}v: {text}\n")[0]["v"]


SCALARS = """
0b11 -0b11 0B11 08 09.5 0x1F -0x1F 0X1f 0o17 0O17 017 +1 -1 -0 0 00 1_000 1__0 _1 1_ 1e3 1E3 1e400
99999999999999999999 9223372036854775807 -9223372036854775808 .5 .5e1 1. 1.e2 . .. -.5 +.5 0.1 1e-7 1.0
1e21 123456789.0 1.10 1.2.3 2026-01-01 2026-01-01T00:00:00Z 12:30:45 y Y n N yes Yes yES no on oN On off
OFF true TRUE tRUE false null NULL nULL ~ = 0x 0xg 1_000.5 1e1_0 0x1p4 .5_0 0777777777777777777777777 0.0
-0.0 1.e 1e 1e+ -- --- +- - -1- 1- 10.0.0.0/8 v1 Null TrUe 1Mi 100m 0.5Gi e1 E5 _ 1,000 0b2 0o8 1o7 !!str\\ 1
!!int\\ "1" !!float\\ 1 !!binary\\ aGk= !!bool\\ yes "1" '1' !foo\\ 1 !\\ 1 "\\x41" 'it''s' !!null\\ ""
2160h 1h30m "" '' {} [] [a,1] {a:\\ 1} "a\\u00e9" é 日本 "\\U0001F600"
"""


def _scalars() -> list[str]:
    words = SCALARS.replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words if word not in ("---", "-")]


def _kubectl_json(kubectl: str, text: str) -> Any:
    done = subprocess.run(
        [kubectl, "label", "--local", "-f", "-", "-o", "json", "x=y"],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_scalars_are_read_as_kubectl_reads_them() -> None:
    kubectl = require("kubectl")
    scalars = _scalars()
    text = f"{HEAD}metadata: {{name: a}}\nv:\n" + "".join(f"- {scalar}\n" for scalar in scalars)
    theirs = _kubectl_json(kubectl, text)["v"]
    ours = _documents(text)[0]["v"]
    assert [(s, _typed(v)) for s, v in zip(scalars, ours, strict=True)] == [
        (s, _typed(v)) for s, v in zip(scalars, theirs, strict=True)
    ]


def test_keys_are_read_as_kubectl_reads_them() -> None:
    kubectl = require("kubectl")
    keys = ["1", "0x10", "1e3", "1.5", "on", "no", "2026-01-01", '"null"', "a b", "'1.0'", "-5", ".inf", "08"]
    text = f"{HEAD}metadata: {{name: a}}\nv:\n" + "".join(f"  {key}: 1\n" for key in keys)
    assert _documents(text)[0]["v"] == _kubectl_json(kubectl, text)["v"]


def _typed(value: Any) -> tuple[str, Any]:
    # JSON has one kind of number.
    return ("number" if type(value) in (int, float) else type(value).__name__, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", True),
        ("y", True),
        ("n", False),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("1e3", 1000),
        ("010", 8),
        ("0o10", 8),
        ("08", 8),
        ("1_000", 1000),
        ("0x1F", 31),
        (".5", 0.5),
        ("1.10", 1.1),
        ("~", None),
        ("!!binary aGk=", "hi"),
        ("18446744073709551615", 1.8446744073709552e19),
        ("1e400", "1e400"),
        ("2160h", "2160h"),
    ],
)
def test_a_plain_scalar_has_the_value_of_yaml_1_1(text: str, value: object) -> None:
    assert _typed(_value(text)) == _typed(value)


def test_documents_are_numbered_and_know_their_line() -> None:
    text = f"# top\n---\n{HEAD}---\n\n---\n# nothing\n---\n{HEAD}v: 2\n"
    documents = list(read_documents(text, source="f.yaml"))
    assert [(d.index, d.line) for d in documents] == [(1, 3), (2, 10)]


def test_a_broken_document_does_not_spoil_the_others() -> None:
    text = f"{HEAD}v: 1\n---\na: b: c\n---\n{HEAD}v: 2\n"
    first, broken, last = read_documents(text, source="f.yaml")
    assert isinstance(first, Document)
    assert isinstance(last, Document)
    assert isinstance(broken, DocumentError)
    assert (broken.index, broken.line, broken.column) == (2, 5, 5)
    assert str(broken) == "f.yaml: line 5, column 5: mapping values are not allowed in this context"
    assert last.content["v"] == 2


def test_documents_ended_by_dots_and_begun_on_the_separators_line_are_read() -> None:
    text = f"{HEAD}v: 1\n...\n--- {{apiVersion: v1, kind: T, v: 2}}\n--- # three\n{HEAD}v: 3\n"
    assert [content["v"] for content in _documents(text)] == [1, 2, 3]


def test_a_yaml_directive_belongs_to_the_document_below_it() -> None:
    assert _documents(f"%YAML 1.1\n---\n{HEAD}v: on\n")[0]["v"] is True


def test_empty_text_holds_no_documents() -> None:
    for text in ("", "\n", "---\n---\n", "# only\n", "\ufeff", "null\n"):
        assert list(read_documents(text, source="f")) == []


def test_byte_order_marks_and_windows_line_ends_are_accepted() -> None:
    assert _documents(f"\ufeff{HEAD}".encode()) == [{"apiVersion": "v1", "kind": "T"}]
    assert _documents(HEAD.encode("utf-16")) == [{"apiVersion": "v1", "kind": "T"}]
    assert len(_documents(f"{HEAD}---\n{HEAD}".replace("\n", "\r\n"))) == 2


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (f"{HEAD}a: 1\nb:\n  c: 1\n  c: 2\n", 6, 3, 'duplicate key "c"; keep one of them'),
        ('{"apiVersion": "v1",\n "kind": "T",\n "kind": "U"}', 3, 2, 'duplicate key "kind"'),
        (f"{HEAD}a:\n\tb: 1\n", 4, None, "a tab cannot indent YAML; use spaces"),
        (f"{HEAD}a: é\nb: x\x07y\n", 4, None, "character"),
        ('{"apiVersion": "v1",\n "kind": "T"', 2, None, "neither JSON"),
    ],
    ids=["a key twice", "a key twice in JSON", "a tab", "a control character", "broken JSON"],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    text: str, line: int, column: int | None, words: str
) -> None:
    error = _error(text)
    assert (error.line, column or error.column) == (line, error.column)
    assert words in error.message


def test_invalid_utf8_is_one_broken_document() -> None:
    broken, good = read_documents(b"a: \xff\n---\n" + HEAD.encode(), source="f.yaml")
    assert isinstance(broken, DocumentError)
    assert (broken.line, broken.column) == (1, 4)
    assert "UTF-8" in broken.message
    assert isinstance(good, Document)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", '{"a":', "[[["])
def test_deep_nesting_is_refused_not_followed(opening: str) -> None:
    error = _error(f"{HEAD}v: {opening * 200_000}" if opening != '{"a":' else opening * 200_000)
    assert f"nested deeper than {MAX_DEPTH}" in error.message or opening == "- "


def test_deep_json_is_refused() -> None:
    deep = '{"apiVersion": "v1", "kind": "T", "v": ' + "[" * 300 + "]" * 300 + "}"
    assert "nested deeper than" in _error(deep).message


def test_a_billion_laughs_end_early() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for name, last in zip("bcdefghi", "abcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{last}'] * 10)}]")
    assert "aliases add more than" in _error(HEAD + "\n".join(lines)).message


def test_aliases_are_copies_and_merges_give_way() -> None:
    content = _documents(
        f"{HEAD}a: &a {{x: 1, z: 2}}\nb: *a\nc: {{z: 3, <<: *a}}\nd: {{<<: [{{x: 5}}, *a]}}\n"
    )[0]
    assert content["b"] == content["a"]
    assert content["b"] is not content["a"]
    assert content["c"] == {"x": 1, "z": 3}
    assert content["d"] == {"x": 5, "z": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v: *none", "undefined or recursive alias"),
        ("v: &a [*a]", "undefined or recursive alias"),
        ("v: .inf", "cannot be written as JSON"),
        ("v: !!int x", "not of the type !!int"),
        ("? [a]\n: 1", "a key must be a plain value"),
        ("~: 1", "a key cannot be null"),
        ("v: {<<: 1}", "can be merged"),
        ("v: [", "did not find"),
        ("v: 'x", "scan"),
    ],
)
def test_what_json_has_no_place_for_is_refused(text: str, words: str) -> None:
    assert words in _error(HEAD + text).message


def test_lists_are_taken_apart() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: A\n"
        "- apiVersion: v1\n- {kind: C, apiVersion: v1}\n"
    )
    first, broken, last = read_documents(text, source="f")
    assert (first.line, last.line) == (4, 7)
    assert isinstance(broken, DocumentError)
    assert broken.message.startswith("kind is missing")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n- b\n", "this is a list"),
        ("just words\n", "this is a single value"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n", "this is a single value"),
        ("kind: T\n", "apiVersion is missing"),
        ("apiVersion: v1\n", "kind is missing"),
        ("apiVersion: 1\nkind: T\n", "apiVersion is 1, but must be text"),
        ("[1]", "this is a list"),
    ],
)
def test_what_is_no_manifest_is_said(text: str, words: str) -> None:
    error = _error(text)
    assert words in error.message
    assert "MIIE" not in error.message


def test_json_files_are_read_with_tabs_and_surrogates_and_several_objects() -> None:
    text = (
        '{\n\t"apiVersion": "v1", "kind": "T",\n\t"v": "\\ud83d\\ude00", "m": 1.0}\n\n'
        '{"apiVersion":"v1","kind":"U"}'
    )
    first, second = read_documents(text, source="f.json")
    assert isinstance(first, Document)
    assert first.content["v"] == "\U0001f600"
    assert type(first.content["m"]) is int
    assert (first.line, second.line) == (1, 5)


def test_flow_yaml_that_begins_like_json_is_read() -> None:
    assert _documents("{apiVersion: v1, kind: T}") == [{"apiVersion": "v1", "kind": "T"}]


def test_a_single_value_can_be_anything_but_two() -> None:
    assert read_value("[1, on]") == [1, True]
    assert read_value("") is None
    with pytest.raises(ValueError, match="more than one"):
        read_value("a: 1\n---\nb: 1\n")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, width=32).map(
        lambda f: int(f) if f.is_integer() else f
    )
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(_scalars()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(_scalars()), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert read_value(write_yaml(value)) == value


def test_what_is_written_is_read_by_kubectl_and_looks_the_same() -> None:
    kubectl = require("kubectl")
    texts = [word.strip("'\"") for word in _scalars()]
    texts += ["two\nlines\n", "no end\nhere", "\n", " lead", "trail ", "a: b", "# c", "a #b", "- x", "x: "]
    texts += ["  a\n b", "a\n\n b \n", "long " * 60, "? a", "a,b", "\u2028", "\x07", "\t", "%a"]
    texts += list("@`?[]{},|>&*!\"'\\é")
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "data": {f"k{number}": text for number, text in enumerate(texts)} | {"empty": "", "on": "off"},
    }
    ours = write_yaml(content)
    assert _kubectl_json(kubectl, ours) == content
    theirs = subprocess.run(
        [kubectl, "label", "--local", "-f", "-", "-o", "yaml", "x=y"],
        input=json.dumps(content).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout.decode()
    assert _documents(theirs) == [content]


def test_yaml_is_written_as_kubectl_writes_it() -> None:
    content = {"b": [1, {"d": "true", "c": None}], "a": {"empty": {}, "none": [], "n": "12", "t": "x\ny\n"}}
    assert write_yaml(content) == (
        'a:\n  empty: {}\n  "n": "12"\n  none: []\n  t: |\n    x\n    y\nb:\n- 1\n- c: null\n  d: "true"\n'
    )


def test_only_json_values_can_be_written() -> None:
    with pytest.raises(TypeError, match="bytes"):
        write_yaml({"a": b"x"})


@given(
    st.binary()
    | st.text("ab:-[]{}&*!|>'\"#,? \n\t%@\u00e9\ufeff\x00\u2028012.<").map(lambda text: text.encode())
)
def test_no_bytes_make_the_reader_raise(raw: bytes) -> None:
    for document in read_documents(raw, source="f"):
        assert isinstance(document, DocumentError) or "kind" in document.content


def test_words_after_json_are_a_broken_document() -> None:
    first, second = read_documents('{"apiVersion": "v1", "kind": "T"} 0', source="f")
    assert isinstance(first, Document)
    assert isinstance(second, DocumentError)
    assert "single value" in second.message


@pytest.mark.parametrize(("depth", "fits"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False)])
def test_json_and_yaml_may_be_nested_equally_deep(depth: int, fits: bool) -> None:
    deep = "[" * depth + "]" * depth
    for text in (f'{{"apiVersion": "v1", "kind": "T", "v": {deep}}}', f"{HEAD}v: {deep}\n"):
        (document,) = read_documents(text, source="f")
        assert isinstance(document, Document) == fits, document


_TEXTS = st.text('ab":\\é/<\n', max_size=3)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), _FLOATS, _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(_TEXTS, _JSON, max_size=3), st.sampled_from(["", " "]))
def test_what_programs_write_is_read_as_with_spaces(content: dict[str, Any], space: str) -> None:
    compact = json.dumps(content, separators=(",", ":" + space), ensure_ascii=False)
    document, repeats = read_first(compact.encode())
    assert repeats == []
    assert json.dumps(document) == json.dumps(read_value(json.dumps(content, indent=1)))


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"b":{"a":1,"\\u0061":2}}', '{"a" :1,"a":"\\u0022:"}'])
def test_keys_that_are_there_twice_are_told_however_they_are_written(text: str) -> None:
    document, repeats = read_first(text.encode())
    assert [repeat.key for repeat in repeats] == ["a"]
    assert document in ({"a": 2}, {"b": {"a": 2}}, {"a": '":'})


WRITTEN = """# a comment
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: T
  metadata:
    name: a
    labels:
      a.b/c: d
  spec:
    names:
    - one
    - two
    nested: [{x: 1},
      {y: 2}]
"""
AS_JSON = """{"apiVersion": "v1", "kind": "T"}
{"apiVersion": "v1",
 "kind": "T",
 "spec": {
   "names": ["one",
     "two"]}}
"""


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        pytest.param(WRITTEN, "metadata.name", 8, id="a field"),
        pytest.param(WRITTEN, "metadata.labels[a.b/c]", 10, id="a key with dots"),
        pytest.param(WRITTEN, "spec.names[1]", 14, id="an item of a list"),
        pytest.param(WRITTEN, "spec.nested[1].y", 16, id="a field of an item"),
        pytest.param(WRITTEN, "spec.missing.field", 11, id="the parent of a missing field"),
        pytest.param(WRITTEN, "nothing", 5, id="the object, for no field of it"),
        pytest.param(f"{HEAD}---\n\n{HEAD}spec: 1\n", "spec", 7, id="the second document"),
        pytest.param(AS_JSON, "spec.names[1]", 6, id="the second value of JSON"),
        pytest.param(AS_JSON, "kind", 3, id="a field of JSON"),
    ],
)
def test_the_line_of_a_field_is_known(text: str, path: str, line: int) -> None:
    document = list(read_documents(text, source="f"))[-1]
    assert isinstance(document, Document)
    assert document.line_of(path) == line
