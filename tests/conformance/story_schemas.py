"""Stories about what a schema makes of objects: more of its words than `kinds.WIDGETS` has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from conformance.compare import story
from conformance.kinds import CRDS, INTEGER, STRING, Json, a_list, an_object, collection, crd
from conformance.peers import Caller
from conformance.servers import until, until_gone, until_served

_PRESERVE: Json = {"x-kubernetes-preserve-unknown-fields": True}
_EMBEDDED: Json = {"type": "object", "x-kubernetes-embedded-resource": True}


@asynccontextmanager
async def defined(c: Caller, definition: Json) -> AsyncIterator[str]:
    """The path of the collection of a definition that is there for a while."""
    await c.post(CRDS, definition, quiet=True)
    path = collection(definition, c.namespace)
    await until_served(c, path)
    try:
        yield path
    finally:
        name = f"{CRDS}/{definition['metadata']['name']}"
        await c.delete(name, quiet=True)
        await until_gone(c, name)


_SHAPES = crd(
    "shapes",
    an_object(
        spec={
            **an_object(
                small={"type": "integer", "format": "int32"},
                large={"type": "integer", "format": "int64"},
                third={"type": "integer", "multipleOf": 3},
                half={"type": "number", "multipleOf": 0.5},
                tenth={"type": "number", "multipleOf": 0.1},
                odd={"type": "number", "minimum": 1.5, "maximum": 3.5},
                open={
                    "type": "number",
                    "minimum": 1,
                    "exclusiveMinimum": True,
                    "maximum": 3,
                    "exclusiveMaximum": True,
                },
                single={"type": "number", "format": "float"},
                anything={"type": "object", "additionalProperties": True},
                nothing={"type": "object", "additionalProperties": False},
                maps={
                    "type": "object",
                    "additionalProperties": {"type": "object", "additionalProperties": STRING},
                },
                lists={"type": "object", "additionalProperties": a_list(an_object(a=STRING))},
                two=a_list(a_list(INTEGER)),
                sets=a_list(
                    {**an_object(a=STRING), "x-kubernetes-map-type": "atomic"},
                    list_type="set",
                ),
                keyed=a_list(
                    {
                        **an_object(a={"type": "string", "default": "x"}, b={"type": "integer"}, c=STRING),
                        "required": ["b"],
                    },
                    list_type="map",
                    keys=["a", "b"],
                ),
                few={
                    "type": "object",
                    "additionalProperties": STRING,
                    "minProperties": 1,
                    "maxProperties": 2,
                },
                some=a_list(STRING, minItems=1, maxItems=2),
                word={"type": "string", "minLength": 2, "maxLength": 3},
                port={"x-kubernetes-int-or-string": True, "maximum": 10, "pattern": "^[a-z]+$"},
                either={
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
                both={
                    "x-kubernetes-int-or-string": True,
                    "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maximum": 5}],
                },
                choice={
                    **an_object(a=INTEGER, b=INTEGER),
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
                limits={**INTEGER, "allOf": [{"minimum": 2}, {"maximum": 5}]},
                never={**STRING, "not": {"enum": ["bad", "worse"]}},
                levels={"type": "integer", "enum": [1, 2, 3]},
                nulls={
                    **an_object(a={**STRING, "nullable": True, "default": "x"}, b=STRING),
                    "nullable": True,
                },
                loose=_PRESERVE,
                mixed={**an_object(known=an_object(a=STRING)), **_PRESERVE},
                raw={**_EMBEDDED, **_PRESERVE},
                resource={
                    **_EMBEDDED,
                    "properties": {
                        "metadata": an_object(name={**STRING, "pattern": "^a"}),
                        "spec": an_object(x=INTEGER),
                    },
                },
                resources=a_list({**_EMBEDDED, **_PRESERVE}),
            ),
        }
    ),
    group="schemas.dev",
)
_POD: Json = {"apiVersion": "v1", "kind": "Pod"}
_SPECS: tuple[Json, ...] = (
    {"small": 2147483648},
    {"large": 9223372036854775807},
    {"large": 9223372036854775808},
    {"small": -9223372036854775809},
    {"port": 9223372036854775808},
    {"half": 1e300},
    {"odd": 18446744073709551616},
    {"large": 1e3},
    {"third": 1e19},
    {"half": 1e-320},
    {"tenth": 0.7},
    {"tenth": 0.30000000000000004},
    {"tenth": 0.35},
    {"tenth": -0.7},
    {"small": "1"},
    {"third": 4},
    {"third": 6},
    {"half": 0.75},
    {"half": 1.5},
    {"half": 2},
    {"odd": 1},
    {"odd": 0},
    {"odd": 1.4},
    {"odd": 3.6},
    {"odd": 4},
    {"open": 1},
    {"open": 3.0},
    {"open": 2},
    {"single": 1e39},
    {"anything": {"a": 1, "b": {"c": 1}, "d": [{"e": 1}], "f": None}},
    {"nothing": {}},
    {"nothing": {"a": 1}},
    {"maps": {"a": {"b": "c"}, "d": {}, "e": None}},
    {"maps": {"a": {"b": 1}, "c": "d"}},
    {"lists": {"a": [{"a": "b", "c": "d"}, {"a": 1}]}},
    {"two": [[1], [2, "x"], None, []]},
    {"sets": [{"a": "x"}, {"a": "x"}, {"a": "y"}]},
    {"keyed": [{"b": 1}, {"a": "x", "b": 1}, {"a": "y", "b": 1}]},
    {"keyed": [{"b": 1, "c": "p"}, "text", {"c": "q"}]},
    {"few": {}},
    {"few": {"a": "b", "c": "d", "e": "f"}},
    {"some": []},
    {"some": ["a", "b", "c"]},
    {"word": "a"},
    {"word": "abcd"},
    {"word": "ééé"},
    {"port": 11},
    {"port": "A"},
    {"port": 1.5},
    {"port": None},
    {"port": True},
    {"either": 1.5},
    {"either": {}},
    {"both": 6},
    {"both": "x"},
    {"both": []},
    {"choice": {}},
    {"choice": {"a": "x"}},
    {"limits": 1},
    {"limits": 6},
    {"limits": "x"},
    {"never": "bad"},
    {"never": 5},
    {"levels": 4},
    {"levels": 2.0},
    {"levels": "2"},
    {"nulls": None},
    {"nulls": {"a": None, "b": None}},
    {"nulls": {}},
    {"loose": {"a": [1, None]}},
    {"loose": "x"},
    {"mixed": {"known": {"a": "b", "c": "d"}, "other": {"e": None}}},
    {"mixed": {"known": 5}},
    {"raw": {}},
    {"raw": {**_POD, "spec": {"a": 1}}},
    {"raw": {"apiVersion": "", "kind": ""}},
    {"raw": {"apiVersion": "a/b/c", "kind": "b_c"}},
    {"raw": {"apiVersion": 1, "kind": "Pod"}},
    {"raw": {"apiVersion": "v1", "kind": ["Pod"]}},
    {"raw": "text"},
    {"raw": {**_POD, "metadata": None}},
    {"raw": {**_POD, "metadata": {}}},
    {"raw": {**_POD, "metadata": 5}},
    {"raw": {**_POD, "metadata": {"name": 5}}},
    {"raw": {**_POD, "metadata": {"labels": "x"}}},
    {"raw": {**_POD, "metadata": {"labels": {"a": 1}}}},
    {"raw": {**_POD, "metadata": {"labels": {"a b": "c d"}}}},
    {"raw": {**_POD, "metadata": {"name": "a/b", "namespace": "C"}}},
    {"raw": {**_POD, "metadata": {"generateName": "A_", "uid": "x", "generation": -1}}},
    {"raw": {**_POD, "metadata": {"creationTimestamp": None, "labels": {}, "annotations": {"a": ""}}}},
    {"raw": {**_POD, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "name": ""}}},
    {"raw": {**_POD, "metadata": {"ownerReferences": [{"kind": "A", "more": 1}]}}},
    {"raw": {**_POD, "metadata": {"finalizers": ["a b"], "unknown": {"a": 1}}}},
    {
        "resource": {
            **_POD,
            "metadata": {"name": "b", "labels": {"x": "y"}},
            "spec": {"x": 1, "y": 1},
            "more": 1,
        }
    },
    {"resource": {**_POD, "metadata": {"name": "a", "more": 1}, "spec": {"x": "1"}}},
    {"resources": [{**_POD, "metadata": {"bad": 1}}, {"kind": "Pod"}, 5, None]},
)


@story
async def more_words_of_schemas_are_obeyed(c: Caller) -> None:
    async with defined(c, _SHAPES) as path:
        for number, spec in enumerate(_SPECS):
            body = {**_shape(f"s{number}"), "spec": spec}
            for strictness in ("Strict", "Ignore"):
                await c.post(f"{path}?fieldValidation={strictness}&dryRun=All", body)


def _shape(name: str) -> Json:
    return {"apiVersion": "schemas.dev/v1", "kind": "Shape", "metadata": {"name": name}}


_PATTERNS = (
    "^[[:alnum:]]+$", "^[[:alpha:]]+$", "^[[:upper:]]+$", "^[[:xdigit:]]+$", "^[[:word:]]+$",
    "^[[:print:]]+$", "^[[:punct:]]+$", "^[^[:space:]]+$", "[[:^digit:]]", r"^[\w-.]+$", r"^[\w-.:/]+$",
    r"^[\d-x]+$", r"^[\s-\w]$", r"^\Qa.b\E", r"^\101$", "a{,3}", "^a{2,}$", "^(?i)abc$", "(?s)^.$", "^.$",
    "(?m)^b$", "a$", r"\bb\b", r"\x41", r"\x{e9}", r"^\pL+$", r"^\p{Greek}+$", r"^\PN+$", "(?P<n>a)b",
    "(?<n>a)b", "^(a|ab)(c|bcd)$", "(?U)^a+$", r"^\S+@\S+$", "^$", "}", "]", "a{", "^[]a]+$", "^[^]a]+$",
    r"^[\]]$", "(|a)*", r"\pN", r"\a", r"\z", r"\A", r"^\\C$", "^é.$",
)  # fmt: skip
_INVALID_PATTERNS = (
    "a(", "a)", "[a", "*", "a**", "x*+", "a{2}{3}", "(?>a)", "(?#c)", "(?=a)", "(?<=a)", "(?<!a)", r"\Z",
    r"[\b]", r"\u0041", r"\C", r"\8", r"(a)\1", "a{1001}", "(a{500}){3}", "a{2,1}", "[z-a]", "(?P=n)",
    "(?P<1-2>a)", "(?P<n>a)(?P<n>b)", r"\p{Foo}", "[[:foo:]]", r"\x{110000}", "(?x)a", "(?", "+", "?",
    "|*", "(*)", r"\h", r"\X",
)  # fmt: skip
_PATTERN_TEXTS = (
    "", "a", "A", "abc", "a b", "a-b.c", "a:/b", "1", "1-x", "-", ".", "a.b", "a.bc", "101", "a{,3}",
    "aa", "\n", "a\n", "a\nb\nc", "é", "α", "x@y", "}", "]", "{", "a[", "a{", "ab", "abcd", "\u2028", "_",
    "١", "\u0000", "😀", "\\C", "éß",
)  # fmt: skip


@story
async def patterns_are_those_of_go(c: Caller) -> None:
    fields = {f"p{number}": {**STRING, "pattern": pattern} for number, pattern in enumerate(_PATTERNS)}
    definition = crd("patterns", an_object(spec=an_object(**fields)), kind="Pattern", group="patterns.dev")
    for pattern in _INVALID_PATTERNS:
        schema = an_object(spec=an_object(a={**STRING, "pattern": pattern}))
        await c.post(f"{CRDS}?dryRun=All", crd("patterns", schema, kind="Pattern", group="patterns.dev"))
    async with defined(c, definition) as path:
        for text in _PATTERN_TEXTS:
            body = {"apiVersion": "patterns.dev/v1", "kind": "Pattern", "metadata": {"name": "a"}}
            await c.post(f"{path}?dryRun=All", {**body, "spec": dict.fromkeys(fields, text)})


_FORMATS = (
    "bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "duration", "email", "hexcolor",
    "hostname", "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac",
    "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5", "unknown", "int32", "int64",
    "double", "date-", "k8slongname",
)  # fmt: skip
_FORMAT_TEXTS = (
    "", "1d", "4 weeks", "12 hr", "1 hour later", "1x", "20260101", "2026-01-01",
    "2026-01-01T00:00:00,5Z", "A <a@b>", "a@b.", "/a", "urn:x", "http://a:80:90", "01.02.03.04",
    "::ffff:1.2.3.4", "::1", "1.2.3.4/08", "a_b.c", "☺.com", "080442957X", "4111-1111-1111-1111",
    "123-45-6789", "#fff", "rgb( 1 , 2 , 3 )", "YQ==", "YQ==YQ==", "5f8f8c44b54764421b7156c1",
    "0000.5e00.5301", "123E4567E89B42D3A456426614174000",
)  # fmt: skip


@story
async def formats_are_those_of_strfmt(c: Caller) -> None:
    fields = {f"f{number}": {**STRING, "format": name} for number, name in enumerate(_FORMATS)}
    definition = crd("formats", an_object(spec=an_object(**fields)), kind="Format", group="formats.dev")
    async with defined(c, definition) as path:
        for text in _FORMAT_TEXTS:
            body = {"apiVersion": "formats.dev/v1", "kind": "Format", "metadata": {"name": "a"}}
            await c.post(f"{path}?dryRun=All", {**body, "spec": dict.fromkeys(fields, text)})


_LOOSE = an_object(
    spec=an_object(
        word=STRING,
        number=INTEGER,
        list=a_list(an_object(name=STRING, text=STRING)),
        keyed=a_list(
            {**an_object(name=STRING, text=STRING), "required": ["name"]},
            list_type="map",
            keys=["name"],
        ),
        map={"type": "object", "additionalProperties": STRING},
        extra=STRING,
    )
)
_STRICT = an_object(
    spec=an_object(
        word={**STRING, "maxLength": 3, "pattern": "^[a-z]+$"},
        number={**INTEGER, "maximum": 5},
        list=a_list(an_object(name=STRING, text={**STRING, "maxLength": 3}), maxItems=3),
        keyed=a_list(
            {**an_object(name=STRING, text={**STRING, "maxLength": 3}), "required": ["name", "text"]},
            list_type="map",
            keys=["name"],
        ),
        map={"type": "object", "additionalProperties": {**STRING, "enum": ["a", "b"]}},
        more={**STRING, "default": "new"},
    )
)


@story
async def what_was_wrong_before_may_stay(c: Caller) -> None:
    definition = crd("ratchets", _LOOSE, kind="Ratchet", group="ratchets.dev")
    async with defined(c, definition) as path:
        body: Json = {"apiVersion": "ratchets.dev/v1", "kind": "Ratchet", "metadata": {"name": "a"}}
        spec: Json = {
            "word": "TOO LONG",
            "number": 9,
            "list": [{"name": "a", "text": "too long"}, {"name": "b", "text": "ok"}],
            "keyed": [{"name": "a", "text": "too long"}, {"name": "b"}],
            "map": {"x": "z", "y": "a"},
            "extra": "goes",
        }
        await c.post(path, {**body, "spec": spec})
        stricter = crd("ratchets", _STRICT, kind="Ratchet", group="ratchets.dev")
        await c.patch(f"{CRDS}/ratchets.ratchets.dev", {"spec": stricter["spec"]}, quiet=True)
        await until(c, f"{path}/a", lambda obj: "extra" not in obj["spec"])
        await c.get(f"{path}/a")
        for change in (
            {"number": 9},
            {"number": 8},
            {"number": 4},
            {"word": "ALSO TOO LONG"},
            {"word": None},
            {"list": [{"name": "a", "text": "too long"}]},
            {"list": [{"name": "b", "text": "ok"}, {"name": "a", "text": "too long"}]},
            {"keyed": [{"name": "b"}, {"name": "a", "text": "too long"}]},
            {"keyed": [{"name": "b"}, {"name": "a", "text": "much too long"}]},
            {"keyed": [{"name": "c"}, {"name": "a", "text": "too long"}]},
            {"map": {"x": "z", "y": "b"}},
            {"map": {"x": "q"}},
            {"map": {"q": "z"}},
            {"extra": "again"},
        ):
            await c.patch(f"{path}/a?dryRun=All", {"spec": change})
        await c.patch(f"{path}/a", {"metadata": {"labels": {"a": "b"}}})
        await c.post(f"{path}?dryRun=All", {**body, "metadata": {"name": "b"}, "spec": spec})


_LAMPS = crd(
    "lamps",
    an_object(
        spec=an_object(n=INTEGER),
        status={
            **an_object(phase={"type": "string", "default": "Unknown"}, n=INTEGER, words=a_list(STRING)),
            "default": {"words": ["a"]},
        },
    ),
    group="lamps.dev",
    subresources={"status": {}},
)


@story
async def a_status_that_is_missing_has_its_default(c: Caller) -> None:
    async with defined(c, _LAMPS) as path:
        lamp = {"apiVersion": "lamps.dev/v1", "kind": "Lamp", "metadata": {"name": "a"}, "spec": {"n": 1}}
        await c.post(f"{path}?dryRun=All", lamp)
        made = (await c.post(path, {**lamp, "status": {"n": 7}})).json
        await c.get(f"{path}/a")
        await c.get(f"{path}/a/status")
        await c.get(path)
        await c.put(f"{path}/a", {**made, "spec": {"n": 2}, "status": {}})
        await c.patch(f"{path}/a/status", {"status": {"n": 5}})
        await c.patch(f"{path}/a/status", {"status": None})
        await c.get(f"{path}/a")
        now = (await c.get(f"{path}/a", quiet=True)).json
        await c.put(f"{path}/a/status", {name: part for name, part in now.items() if name != "status"})
        await c.patch(f"{path}/a", {"spec": {"n": 3}})
        await c.patch(
            f"{path}/b?fieldManager=m", {**lamp, "metadata": {"name": "b"}, "status": {"n": 1}}, "apply"
        )
        await c.get(f"{path}/b")
        applied = {
            "apiVersion": "lamps.dev/v1",
            "kind": "Lamp",
            "metadata": {"name": "b"},
            "status": {"n": 1},
        }
        await c.patch(f"{path}/b/status?fieldManager=m", applied, "apply")


@story
async def the_default_of_a_list_may_repeat_items(c: Caller) -> None:
    keyed = {**an_object(k=STRING), "required": ["k"]}
    for kind, items, given in (
        ("set", STRING, ["a", "a"]),
        ("map", keyed, [{"k": "a"}, {"k": "a"}]),
        ("atomic", STRING, ["a", "a"]),
    ):
        lists = a_list(items, kind, ["k"] if kind == "map" else (), default=given)
        await c.post(
            f"{CRDS}?dryRun=All", crd("lists", an_object(spec=an_object(l=lists)), group="lists.dev")
        )
