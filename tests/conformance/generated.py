"""What generated sequences of requests are made of: the two servers, the objects, what is sent of them."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from conformance.compare import compare, difference
from conformance.differences import compared
from conformance.kinds import GAUGES_PATH, Json, gauge, in_namespace, owned, twin, widget
from conformance.peers import Answer, Caller, Events
from conformance.servers import ours, reference
from support.oracle import Oracle

T = TypeVar("T")

# --- what is sent -----------------------------------------------------------------------------------------

TEXT = st.sampled_from(["a", "b"])
NUMBER = st.sampled_from([1, 2])
NAMES = st.sampled_from(["a", "b"])
CLIENTS = st.sampled_from(["kubectl/1", "controller/1", "other/1"])
MANAGERS = st.sampled_from(["kubectl", "controller", "other"])
WHERE = st.sampled_from(["one", "two", "cluster", "owned", "twin", "twin beta"])
WITH_STATUS = st.sampled_from(["one", "two", "owned"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), min_size=1, max_size=2)
FINALIZERS = st.lists(st.sampled_from(["t.dev/a", "t.dev/b"]), min_size=1, unique=True)
FORMS = st.sampled_from(
    [
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    ]
)


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object with any of these members."""
    return st.fixed_dictionaries({}, optional=members)


OWNERS = st.lists(
    st.builds(
        lambda uid, name: {"apiVersion": "nobody.dev/v1", "kind": "Owner", "name": name, "uid": uid},
        st.sampled_from(["1", "2"]),
        TEXT,
    ),
    unique_by=lambda owner: owner["uid"],
    max_size=2,
)
METADATA = some(
    labels=st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=2),
    annotations=st.dictionaries(TEXT, TEXT, max_size=2),
    finalizers=st.lists(st.sampled_from(["t.dev/a", "t.dev/b"]), unique=True, max_size=2),
    ownerReferences=OWNERS,
)
_PARTS = st.fixed_dictionaries({"name": st.sampled_from(["m", "n"])}, optional={"count": st.integers(0, 2)})
WIDGETS = st.fixed_dictionaries(
    {"size": st.sampled_from([1, 2, 100])},
    optional={
        "colour": st.sampled_from(["red", "blue", "pink"]),
        "owner": st.sampled_from(["me", "you"]),
        "tags": st.lists(st.sampled_from(["p", "q", "r"]), max_size=3),
        "parts": st.lists(_PARTS, max_size=2),
        "limits": st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 2), max_size=2),
        "free": st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 2), max_size=2),
        "replicas": st.integers(0, 2),
        "unknown": st.just(1),
    },
)
LOOSE = st.recursive(
    st.none() | NUMBER | TEXT | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OWNEDS = some(
    text=TEXT,
    number=NUMBER,
    mixed=TEXT | NUMBER,
    either=TEXT | NUMBER | st.dictionaries(TEXT, NUMBER, max_size=2) | st.lists(TEXT, max_size=2),
    names=st.lists(st.sampled_from("abc"), unique=True, max_size=3),
    whole=st.lists(some(name=TEXT, note=TEXT), max_size=2),
    ports=st.lists(
        st.fixed_dictionaries(
            {"port": st.sampled_from([1, 2, 3])},
            optional={
                "protocol": st.sampled_from(["TCP", "UDP"]),
                "note": TEXT,
                "deep": some(x=TEXT, y=TEXT),
            },
        ),
        unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
        max_size=3,
    ),
    map=st.dictionaries(TEXT, TEXT, max_size=2),
    maps=st.dictionaries(TEXT, some(x=TEXT, y=NUMBER), max_size=2),
    block=some(x=TEXT, y=TEXT),
    anything=st.dictionaries(TEXT, LOOSE, max_size=2) | some(known=some(x=TEXT, u=TEXT)),
    deep=some(x=TEXT, y=some(z=TEXT, w=NUMBER)),
    replicas=NUMBER,
)
TWINS = some(a=TEXT, b=TEXT)
STATUSES = some(
    phase=TEXT,
    replicas=NUMBER,
    conditions=st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(["A", "B"]), "status": TEXT}),
        unique_by=lambda condition: condition["type"],
        max_size=2,
    ),
)
WRITES = st.one_of(
    st.tuples(st.sampled_from(["one", "two", "cluster"]), WIDGETS),
    st.tuples(st.just("owned"), OWNEDS),
    st.tuples(st.sampled_from(["twin", "twin beta"]), TWINS),
)
"""Where to, and a spec for it."""
PIECES = st.one_of(
    st.fixed_dictionaries({"spec": WIDGETS.map(lambda spec: {k: v for k, v in spec.items() if k != "size"})}),
    st.fixed_dictionaries({"spec": OWNEDS}),
    st.fixed_dictionaries({"spec": st.fixed_dictionaries({"owner": st.none()})}),
    st.fixed_dictionaries({"metadata": METADATA}),
    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": LABELS})}),
    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"finalizers": FINALIZERS})}),
    st.fixed_dictionaries({"status": STATUSES}),
    st.sampled_from(
        [
            {},
            {"metadata": {"finalizers": None}},
            {"metadata": {"labels": None}},
            {"metadata": {"labels": {"x": None}}},
            {"metadata": {"ownerReferences": None}},
            {"metadata": {"managedFields": [{}]}},
            {"metadata": {"managedFields": []}},
        ]
    ),
)
OPERATIONS = st.lists(
    st.sampled_from(
        [
            {"op": "replace", "path": "/spec/size", "value": 7},
            {"op": "add", "path": "/spec/owner", "value": "me"},
            {"op": "add", "path": "/metadata/labels", "value": {"x": "1"}},
            {"op": "test", "path": "/spec/size", "value": 1},
            {"op": "remove", "path": "/metadata/finalizers"},
            {"op": "remove", "path": "/spec/tags"},
            {"op": "add", "path": "/spec/text", "value": "a"},
        ]
    ),
    min_size=1,
    max_size=2,
)

# --- the two servers --------------------------------------------------------------------------------------

_OWNED, _TWIN = {"plural": "owneds", "group": "owned.dev"}, {"plural": "twins"}
_numbers = itertools.count()


class Pair(RuleBasedStateMachine):
    """Both servers. The class attributes are set by the test."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    oracle: ClassVar[Oracle]
    form: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Json]] = [{}, {}]
        self.watches: list[list[Events]] = [[], []]
        self.points: list[tuple[str, list[str]]] = []
        self.stack = AsyncExitStack()
        number = next(_numbers)
        self.space = {key: f"g{number}-{self.form}-{key}" for key in ("one", "two", "many")}
        self.suffix = f"-g{number}-{self.form}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize()
    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        theirs = await self.stack.enter_async_context(reference(self.oracle))
        mine = await self.stack.enter_async_context(ours(self.form, self.oracle, folder, self.space.values()))
        self.callers = [Caller(theirs), Caller(mine)]
        for target in (
            self.path("one"),
            f"{self.path('two')}?labelSelector=x=1",
            f"{self.path('one')}?fieldSelector=spec.owner=me",
            self.path("owned"),
            self.path("twin beta"),
        ):
            await self.open(target)

    async def open(self, *targets: str) -> None:
        """Watch on both; one target for both, or one for each."""
        for caller, watches, target in zip(self.callers, self.watches, targets * 2, strict=False):
            watches.append(await self.stack.enter_async_context(caller.watch(target)))
            await watches[-1].opened()

    def path(self, where: str) -> str:
        target = self.space["one"]
        return {
            "cluster": GAUGES_PATH,
            "owned": in_namespace(target, **_OWNED),
            "twin": in_namespace(target, **_TWIN),
            "twin beta": in_namespace(target, version="v1beta1", **_TWIN),
        }.get(where) or in_namespace(self.space[where])

    def name(self, where: str, name: str) -> str:
        """The name of one object, which is another in every sequence where there are no namespaces."""
        return name + self.suffix if where == "cluster" else name

    def target(self, where: str, name: str) -> str:
        """The path of one object."""
        return f"{self.path(where)}/{self.name(where, name)}"

    def new(self, where: str, name: str, spec: Json, meta: Json | None = None) -> Json:
        """An object to be sent."""
        name = self.name(where, name)
        if where == "cluster":
            return gauge(name, meta=meta, **spec)
        if where == "owned":
            return owned(name, meta=meta, spec=spec)
        if where.startswith("twin"):
            made = twin(name, version="v1beta1" if where == "twin beta" else "v1", **spec)
            made["metadata"] |= meta or {}
            return made
        return widget(name, meta=meta, **spec)

    def both(self, *asked: Awaitable[Answer]) -> list[Answer]:
        """Ask both, and compare."""

        async def work() -> list[Answer]:
            return list(await asyncio.gather(*asked))

        answers = self.run(work())
        compared[f"generated, {self.form}"] += 1
        first, other = (caller.transcript[-1] for caller in self.callers)
        assert first.asked == other.asked
        assert not (text := difference(first, other)), text
        return answers

    def each(self, method: str, target: str, bodies: list[Any], **named: Any) -> list[Answer]:
        """Send each server a body of its own, and compare."""
        pairs = zip(self.callers, bodies, strict=True)
        return self.both(*(caller.call(method, target, body, **named) for caller, body in pairs))

    def last(self, where: str, name: str) -> list[Json] | None:
        """What was last seen of an object on each server; None where that is not known of both."""
        versions = [seen.get(f"{where}/{name}") for seen in self.seen]
        return [version for version in versions if version is not None] if None not in versions else None

    def remember(self, where: str, name: str, answers: list[Answer]) -> None:
        """Keep what the servers say of an object."""
        for seen, answer in zip(self.seen, answers, strict=True):
            if answer.status < 300 and "spec" in answer.json:
                seen[f"{where}/{name}"] = answer.json

    def teardown(self) -> None:
        """The end of a sequence, whether it went well or not."""
        try:
            if hasattr(self, "callers"):
                self.run(self._end())
        finally:
            self.run(self.stack.aclose())

    async def _end(self) -> None:
        """One last object of each kind, which every watch sees; and what each of them saw before it."""
        for caller in self.callers:
            caller.transcript.clear()
        for where, revisions in self.points:
            await self.open(*(f"{self.path(where)}?resourceVersion={revision}" for revision in revisions))
        ends = {
            "one": self.new("one", "end", {"size": 1, "owner": "me"}),
            "two": self.new("two", "end", {"size": 1}, {"labels": {"x": "1"}}),
            "many": self.new("many", "end", {"size": 1}),
            "owned": self.new("owned", "end", {}),
            "twin": self.new("twin", "end", {}),
        }
        transcripts = []
        for caller, watches in zip(self.callers, self.watches, strict=True):
            for where, last in ends.items():
                await caller.post(self.path(where), last, quiet=True)
            for watch in watches:
                await watch.until("end")
            transcripts.append(caller.transcript)
        differences = compare(*transcripts)
        assert not differences, "\n".join(differences)
