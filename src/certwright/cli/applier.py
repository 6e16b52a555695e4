"""Client-side apply of one object (as `kubectl apply`), and the server's errors as sentences with a fix."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from certwright.cli import lazy
from certwright.cli.errors import report_warning
from certwright.cli.format import reference
from certwright.diagnosis.related import get_or_none
from certwright.kube.api import errors
from certwright.kube.api.errors import ApiError, Invalid, NotFound, TooLarge
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import Document
from certwright.kube.client import discovery
from certwright.kube.client.cache import revision_of
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.http_messages import whole_body

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own annotation, so that both programs can be used on one object."""

# Go's encoding/json writes these as escapes; kubectl compares the annotation as text.
_GO_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\N{LINE SEPARATOR}": "\\u2028",
        "\N{PARAGRAPH SEPARATOR}": "\\u2029",
    }
)


def three_way_patch(
    last: Mapping[str, Any], desired: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON merge patch from `live` to `desired`, given the `last` applied object.

    Empty if nothing changes. Lists are replaced as a whole, a limit of merge patches.
    """
    patch = {name: None for name in last if name not in desired and live.get(name) is not None}
    return patch | _additions(last, desired, live)


def _additions(
    last: Mapping[str, Any], desired: Mapping[str, Any], live: Mapping[str, Any]
) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for name, value in desired.items():
        there = live.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            before = last.get(name)
            inner = three_way_patch(before if isinstance(before, Mapping) else {}, value, there)
            if inner:
                patch[name] = inner
        # In Python True == 1, but not in JSON.
        elif value != there or isinstance(value, bool) != isinstance(there, bool):
            patch[name] = value
    return patch


def with_last_applied(desired: Mapping[str, Any]) -> dict[str, Any]:
    """`desired` with itself in its annotation, byte for byte as in kubectl."""
    metadata = dict(desired.get("metadata") or {})
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    bare = {**desired, "metadata": {**metadata, "annotations": annotations}}
    text = msgspec.json.encode(bare, order="deterministic").decode().translate(_GO_ESCAPES) + "\n"
    return {**desired, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: text}}}


def last_applied(live: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last applied object, from the annotation; None if it is missing or invalid."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    try:
        last = msgspec.json.decode(annotations.get(LAST_APPLIED, ""))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return last if isinstance(last, dict) else None


Json = dict[str, Any]
Verb = Literal["created", "configured", "unchanged"]
_CREATE_ATTEMPTS = 5
_ESTABLISH_S = 5.0


class Refused(Exception):
    """The document cannot be applied; `sentences` give the reasons, one per problem."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


class Applied(msgspec.Struct, frozen=True):
    """The result of applying a document."""

    kind: Kind[Json]
    namespace: str
    name: str
    verb: Verb
    revision: int
    """The new resourceVersion."""

    def __str__(self) -> str:
        """`certificate.cert-manager.io/web created`, as in kubectl."""
        return f"{reference(self.kind, self.name)} {self.verb}"


class Preview(msgspec.Struct, frozen=True):
    """What applying a document would change."""

    kind: Kind[Json]
    namespace: str
    name: str
    before: Json | None
    """The live object; None if there is none."""
    after: Json


def where(document: Document, path: str = "") -> str:
    """The position of a document, or of its field at `path`, for error messages: `quickstart.yaml: document
    2, line 12`."""
    line = document.line_of(path) if path else document.line
    return f"{document.source}: document {document.index}, line {line}"


def what(content: Mapping[str, Any]) -> str:
    """The object that a document names, as far as it does: `Certificate default/web`."""
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    name = "/".join(part for part in parts if part and isinstance(part, str))
    return f"{content.get('kind') or 'object'} {name}".strip()


class Applier:
    """Applies documents to one server, one after the other or several at the same time."""

    def __init__(
        self,
        client: Client,
        *,
        default_namespace: str,
        only_namespace: str | None = None,
        make_namespaces: bool = False,
        dry_run: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._default_namespace = default_namespace
        self._only_namespace = only_namespace
        self._make_namespaces = make_namespaces
        self._namespaces: set[str] = set()
        self._dry_run = dry_run
        self._kinds: dict[tuple[str, str], Kind[Json]] = {}
        self._defined_kinds = False
        self._is_new: dict[Kind[Json], bool] = {}
        self._preparing = asyncio.Lock()

    async def apply(self, document: Document) -> Applied:
        """Create or update the object in `document`. Raises `Refused`, and `errors.Unreachable`."""
        kind, namespace, desired = await self._placed(document.content)
        async with self._refusing(kind, document.content):
            if namespace and self._make_namespaces:
                await self._ensure_namespace(namespace)
            applied = await self._create_or_change(kind, namespace, desired)
        self._defined_kinds |= kind.kind == "CustomResourceDefinition"
        return applied

    async def preview(self, document: Document) -> Preview:
        """The live object, and the result of applying `document` as a dry run. Raises as `apply`.

        Source: Kubernetes API concepts, "Dry-run".
        """
        kind, namespace, desired = await self._placed(document.content)
        async with self._refusing(kind, document.content):
            live, after = await self._compared(kind, namespace, desired)
        return Preview(kind, namespace, desired["metadata"]["name"], live, after)

    async def _placed(self, content: Json) -> tuple[Kind[Json], str, Json]:
        """The kind and the namespace of a document, and its content with that namespace, which kubectl
        records too. Raises `Refused`."""
        kind = await self._kind(content)
        check_name(content)
        if not kind.namespaced:
            return kind, "", content
        own = content["metadata"].get("namespace")
        if own is not None and not isinstance(own, str):
            raise Refused([f"metadata.namespace: {_not_text(own)}"])
        if own and self._only_namespace and own != self._only_namespace:
            raise Refused([f"metadata.namespace: is `{own}`, but --namespace says `{self._only_namespace}`"])
        namespace = own or self._default_namespace
        return kind, namespace, {**content, "metadata": {**content["metadata"], "namespace": namespace}}

    @asynccontextmanager
    async def _refusing(self, kind: Kind[Json], content: Json) -> AsyncIterator[None]:
        """Raise `Refused` for an error of the server."""
        try:
            yield
        except errors.ApiError as error:
            # Never print the content of a Secret.
            shown = None if kind.kind == "Secret" else content
            raise Refused(explain(error, await self._schema(kind), shown)) from error

    async def _compared(self, kind: Kind[Json], namespace: str, desired: Json) -> tuple[Json | None, Json]:
        """The live object, and the result; both of one revision, so that a controller's write in between is
        not shown as a difference."""
        name = desired["metadata"]["name"]
        for attempt in range(_CREATE_ATTEMPTS):
            live = await get_or_none(self._client, kind, name, namespace)
            if live is None:
                return None, await self._client.create(
                    kind, with_last_applied(desired), dry_run=True, strict=True
                )
            patch = three_way_patch(last_applied(live) or {}, with_last_applied(desired), live)
            after = await self._client.patch(kind, name, namespace, patch, dry_run=True, strict=True)
            if revision_of(after) == revision_of(live) or attempt == _CREATE_ATTEMPTS - 1:
                return live, after
        raise AssertionError("the last attempt returns or raises")

    def place(self, applied: Applied) -> str:
        """` (namespace shop)` for an object outside the default namespace."""
        usual = applied.namespace in ("", self._default_namespace)
        return "" if usual else f" (namespace {applied.namespace})"

    async def _create_or_change(self, kind: Kind[Json], namespace: str, desired: Json) -> Applied:
        name = desired["metadata"]["name"]
        for attempt in range(_CREATE_ATTEMPTS):
            # Where the last object of the kind was new, this one probably is: that saves a request.
            live = None
            if attempt > 0 or not self._is_new.get(kind):
                live = await get_or_none(self._client, kind, name, namespace)
            self._is_new[kind] = live is None
            try:
                if live is None:
                    made = await self._create(kind, desired)
                    return Applied(kind, namespace, name, "created", revision_of(made))
                verb, now = await self._change(kind, live, desired)
                return Applied(kind, namespace, name, verb, revision_of(now))
            except (errors.AlreadyExists, errors.Conflict):
                # Another writer was faster: retry. A permanent conflict is the user's own resourceVersion.
                if attempt == _CREATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _create(self, kind: Kind[Json], desired: Json) -> Json:
        return await self._client.create(kind, with_last_applied(desired), dry_run=self._dry_run, strict=True)

    async def _change(self, kind: Kind[Json], live: Json, desired: Json) -> tuple[Verb, Json]:
        metadata = live["metadata"]
        last = last_applied(live)
        if last is None:
            report_warning(
                f"{reference(kind, metadata['name'])} was not made by apply; fields it has and the file "
                f"has not are left as they are (annotation {LAST_APPLIED} is absent, and is added now)"
            )
        patch = three_way_patch(last or {}, with_last_applied(desired), live)
        if not patch:
            return "unchanged", live
        changed = await self._client.patch(
            kind,
            metadata["name"],
            metadata.get("namespace", ""),
            patch,
            dry_run=self._dry_run,
            strict=True,
        )
        same = changed["metadata"].get("resourceVersion") == metadata.get("resourceVersion")
        return "unchanged" if same and not self._dry_run else "configured", changed

    async def _kind(self, content: Json) -> Kind[Json]:
        api_version, kind = content.get("apiVersion"), content.get("kind")
        for field, value in (("apiVersion", api_version), ("kind", kind)):
            if not isinstance(value, str) or not value:
                raise Refused([f"{field}: is missing; every object needs apiVersion and kind"])
        key = (str(api_version), str(kind))
        if key not in self._kinds:
            async with self._preparing:
                if key not in self._kinds:
                    self._kinds[key] = await self._discover(*key)
        return self._kinds[key]

    async def _discover(self, api_version: str, kind: str) -> Kind[Json]:
        # A CRD that was just created, e.g. by the same file, is served once it is established.
        deadline = self._clock.monotonic() + (_ESTABLISH_S if self._defined_kinds else 0)
        while True:
            try:
                return await discovery.kind_for(self._client, api_version, kind)
            except discovery.UnknownKind as error:
                if self._clock.monotonic() >= deadline:
                    raise Refused([f"kind: {error}"]) from error
            await self._clock.sleep(0.1)

    async def _ensure_namespace(self, namespace: str) -> None:
        if namespace in self._namespaces:
            return
        kind = await self._kind({"apiVersion": "v1", "kind": "Namespace"})
        async with self._preparing:
            if namespace not in self._namespaces and await get_or_none(self._client, kind, namespace) is None:
                content: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                await self._create(kind, content)
                report_warning(f"namespace {namespace} did not exist; it has been created")
            self._namespaces.add(namespace)

    async def _schema(self, kind: Kind[Json]) -> Json | None:
        """The kind's schema if the server has it as a CRD: only needed for an error."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.resource}"
        try:
            response = await self._client.raw("GET", path)
        except errors.ApiError:
            return None
        for version in msgspec.json.decode(await whole_body(response))["spec"]["versions"]:
            if version["name"] == kind.version:
                schema: Json | None = (version.get("schema") or {}).get("openAPIV3Schema")
                return schema
        return None


def check_name(content: Json) -> None:
    """Raise `Refused` unless the object has a name that can be asked for."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        raise Refused(["metadata: is missing; write `metadata:` with a `name:` below it"])
    name = metadata.get("name")
    if name is None or name == "":
        hint = "apply cannot use generateName, " if metadata.get("generateName") else ""
        raise Refused([f"metadata.name: is missing; {hint}give the object a name"])
    if not isinstance(name, str):
        raise Refused([f"metadata.name: {_not_text(name)}"])
    if name in (".", "..") or "/" in name or "%" in name:
        raise Refused([f"metadata.name: `{name}` may not be `.` or `..`, nor hold `/` or `%`"])


def _not_text(value: object) -> str:
    """Why a value is no name: YAML has more words for true and false than users expect."""
    words = ""
    if isinstance(value, bool):
        words = f" (YAML reads {'y, yes and on' if value else 'n, no and off'} so)"
    return f"{msgspec.json.encode(value).decode()} is not text{words}; put quotes around it"


def refuse_at(document: Document, refusal: Refused) -> list[str]:
    """The sentences of a refusal, each with the position of its field, and the object."""
    named = what(document.content)
    return [
        f"{where(document, sentence.partition(': ')[0])}: {named}: {sentence}"
        for sentence in refusal.sentences
    ]


def source_of(document: Document) -> str:
    """The position and the object of a document, for sentences about it."""
    return f"{where(document)}: {what(document.content)}"


_UNKNOWN = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
_DUPLICATE = re.compile(r'duplicate field "((?:[^"\\]|\\.)*)"')
_UNSUPPORTED = re.compile(r'Unsupported value: "((?:[^"\\]|\\.)*)": supported values: (.*)')
_LIMIT = re.compile(r"limit is (\d+)$")
_EXPECTED_TYPE = re.compile(r"must be of type (\w+)")
_WRONG_TYPE = re.compile(r"cannot be handled as an? \S+: (\S+): (expected an? (\w+), got .*)$")
_PART = re.compile(r"[^.\[\]]+")
_FIX_BY_TYPE = {
    "array": "write a list, e.g. `[a, b]`, or one `- item` per line",
    "byte": "write it in base64, in one line",
    "boolean": "write true or false, without quotes",
    "integer": "write a whole number, without quotes",
    "number": "write a number, without quotes",
    "object": "write fields below it, indented",
    "string": 'write text; put quotes around it if it looks like a number or a truth value ("1.10", "yes")',
}
_OTHER_DEFINITIONS = (
    "the server has cert-manager's CRDs, which do not allow it: install those that `certwright crds` prints"
)
_MOST_NAMES_SHOWN = 12
_LONGEST_VALUE_SHOWN = 60
Schema = Mapping[str, Any]


def explain(error: ApiError, schema: Schema | None, content: Mapping[str, Any] | None = None) -> list[str]:
    """One sentence per error: first its field, last the fix, if known.

    `schema`: the kind's OpenAPI schema (`openAPIV3Schema` of its CRD), if any. `content`: the object as
    written; None if its values must not be shown.
    """
    unknown = [_unknown_field(path, schema) for path in _UNKNOWN.findall(error.message)]
    doubled = [f"{path}: is a duplicate; keep one of the two" for path in _DUPLICATE.findall(error.message)]
    if unknown or doubled:
        return unknown + doubled
    if isinstance(error, Invalid) and error.causes:
        return [
            _with_fix(cause.field, _with_value(cause.field, cause.message, content), schema)
            for cause in error.causes
        ]
    if typed := _WRONG_TYPE.search(error.message):
        fix = _FIX_BY_TYPE.get(typed[3])
        return [f"{typed[1]}: {typed[2]}" + (f"; {fix}" if fix else "")]
    if isinstance(error, TooLarge) and (limit := _LIMIT.search(error.message)):
        most = int(limit[1]) / 2**20
        return [f"the object is too large: the server takes at most {most:.4g} MiB in one request; split it"]
    if isinstance(error, NotFound) and error.details is not None and error.details.kind == "namespaces":
        return [f"metadata.namespace: {error.message}; create it first, or name another"]
    return [str(error)]


def _unknown_field(path: str, schema: Schema | None) -> str:
    parents, _, name = path.rpartition(".")
    known = sorted(_properties(_find(schema, parents)))
    near = lazy.difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"{path}: unknown field; did you mean `{near[0]}`?"
    elsewhere = next(_paths_to(schema, name, ""), None)
    if elsewhere:
        return f"{path}: unknown field; did you mean `{elsewhere}`?"
    if 0 < len(known) <= _MOST_NAMES_SHOWN:
        return f"{path}: unknown field; known here: {', '.join(known)}"
    return f"{path}: unknown field; take it out"


def _with_fix(path: str, message: str, schema: Schema | None) -> str:
    text = f"{path}: {message}" if path else message
    if fix := _fix(path, message, schema):
        return f"{text.rstrip('.')}; {fix}"
    return text


def _fix(path: str, message: str, schema: Schema | None) -> str:
    if path == "metadata.annotations" and message.startswith("Too long"):
        return "apply keeps a copy of the object in an annotation, so it may have 256 KiB at most: split it"
    if expected := _EXPECTED_TYPE.search(message):
        described = str(_find(schema, path).get("type", ""))
        return _FIX_BY_TYPE.get(expected[1]) or _FIX_BY_TYPE.get(described, "")
    if name := _valid_name(message):
        return f'write e.g. "{name}"'
    if unsupported := _UNSUPPORTED.match(message):
        if path == "spec.privateKey.algorithm" and unsupported[1] in lazy.certificate.KEY_ALGORITHMS:
            return _OTHER_DEFINITIONS
        near = _nearest(unsupported[1], re.findall(r'"([^"]*)"', unsupported[2]))
        return f'did you mean "{near}"?' if near else ""
    if message == "Required value":
        return f"add `{path.rpartition('.')[2]}`"
    return ""


def _with_value(path: str, message: str, content: Mapping[str, Any] | None) -> str:
    """The message with the value, if Kubernetes reports only its type."""
    expected = _EXPECTED_TYPE.search(message)
    value = _value_at(content, path)
    if not expected or value is None:
        return message
    shown = msgspec.json.encode(value).decode()
    if len(shown) > _LONGEST_VALUE_SHOWN:
        shown = f"{shown[:_LONGEST_VALUE_SHOWN]}…"
    return f"Invalid value: {shown}: must be of type {expected[1]}"


def _value_at(content: Any, path: str) -> Any:
    """The value of the field at `path`; None if it is missing."""
    here = content
    for part in _PART.findall(path):
        if isinstance(here, Mapping):
            here = here.get(part)
        elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            return None
    return here


def _nearest(word: str, words: list[str]) -> str:
    """The word in `words` that was probably meant, whatever its case; "" without one."""
    bare = {re.sub(r"[^a-z0-9]", "", known.lower()): known for known in words}
    near = lazy.difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), bare, n=1)
    return bare[near[0]] if near else ""


def _valid_name(message: str) -> str:
    """The nearest DNS-1123 name to the rejected one; "" if the error is about something else."""
    match = re.match(r'Invalid value: "((?:[^"\\]|\\.)*)": a lowercase RFC 1123 (subdomain|label)', message)
    if not match:
        return ""
    dots, longest = (".", 253) if match[2] == "subdomain" else ("", 63)
    dashed = re.sub(rf"[^a-z0-9{dots}]+", "-", match[1].lower())
    return re.sub(r"(^|\.)-+|-+(\.|$)", r"\1\2", dashed)[:longest].strip("-.")


def _find(schema: Schema | None, path: str) -> Schema:
    """The schema of the field at `path`; empty if there is none."""
    here: Schema = schema or {}
    for part in _PART.findall(path):
        if part.isdigit() and "items" in here:
            here = here["items"]
            continue
        additional = here.get("additionalProperties")
        fallback = additional if isinstance(additional, Mapping) else {}
        here = _properties(here).get(part, fallback)
    return here


def _properties(schema: Schema) -> Mapping[str, Schema]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _paths_to(schema: Schema | None, name: str, path: str, *, depth: int = 4) -> Iterator[str]:
    """The paths of fields called `name`, nearest to the root first, without `status`."""
    inner = [(key, value) for key, value in _properties(schema or {}).items() if (path or key != "status")]
    for key, _ in inner:
        if key == name:
            yield f"{path}.{key}".lstrip(".")
    for key, value in inner:
        if depth:
            yield from _paths_to(value, name, f"{path}.{key}", depth=depth - 1)
