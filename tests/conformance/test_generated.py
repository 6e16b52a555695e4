"""Sequences of requests that nobody thought of, sent to the reference and to ours in lock step.

Three clients write to a few objects in two namespaces of two kinds, with what they last saw of them or with
nothing; every answer is compared at once, and at the end what four watches saw. `make soak` runs it for long.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from conformance.compare import compare, difference
from conformance.differences import compared
from conformance.kinds import GAUGES_PATH, Json, gauge, in_namespace, widget
from conformance.peers import Answer, Caller, Events
from conformance.servers import ours, reference
from support.oracle import Oracle

T = TypeVar("T")
SOAK = int(os.environ.get("CERTWRIGHT_SOAK", "0"))
"""How many sequences; 0: as many as a test run has time for."""

NAMES = st.sampled_from(["a", "b"])
CLIENTS = st.sampled_from(["kubectl/1", "controller/1", "other/1"])
WHERE = st.sampled_from(["one", "two", "cluster"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), min_size=1, max_size=2)
FINALIZERS = st.lists(st.sampled_from(["t.dev/a", "t.dev/b"]), min_size=1, unique=True)
SPECS = st.fixed_dictionaries(
    {"size": st.sampled_from([1, 2, 100])},
    optional={
        "colour": st.sampled_from(["red", "blue", "pink"]),
        "owner": st.sampled_from(["me", "you"]),
        "tags": st.lists(st.sampled_from(["p", "q", "r"]), max_size=3),
        "parts": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["m", "n"])}, optional={"count": st.integers(0, 2)}
            ),
            max_size=2,
        ),
        "limits": st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 2), max_size=2),
        "free": st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 2), max_size=2),
        "unknown": st.just(1),
    },
)
PIECES = st.one_of(
    st.fixed_dictionaries({"spec": SPECS.map(lambda spec: {k: v for k, v in spec.items() if k != "size"})}),
    st.fixed_dictionaries({"spec": st.fixed_dictionaries({"owner": st.none()})}),
    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": LABELS})}),
    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"finalizers": FINALIZERS})}),
    st.just({"metadata": {"finalizers": None}}),
    st.just({"metadata": {"labels": None}}),
    st.just({}),
)
OPERATIONS = st.lists(
    st.sampled_from(
        [
            {"op": "replace", "path": "/spec/size", "value": 7},
            {"op": "add", "path": "/spec/owner", "value": "me"},
            {"op": "add", "path": "/metadata/labels", "value": {"x": "1"}},
            {"op": "test", "path": "/spec/size", "value": 1},
        ]
    ),
    min_size=1,
    max_size=2,
)
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
        self.stack = AsyncExitStack()
        number = next(_numbers)
        self.space = {"one": f"g{number}-{self.form}-one", "two": f"g{number}-{self.form}-two"}
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
        for caller, watches in zip(self.callers, self.watches, strict=True):
            for target in (
                in_namespace(self.space["one"]),
                f"{in_namespace(self.space['two'])}?labelSelector=x=1",
                f"{in_namespace(self.space['one'])}?fieldSelector=spec.owner=me",
            ):
                watches.append(await self.stack.enter_async_context(caller.watch(target)))
                await watches[-1].opened()

    def path(self, where: str) -> str:
        return GAUGES_PATH if where == "cluster" else in_namespace(self.space[where])

    def name(self, where: str, name: str) -> str:
        return name + self.suffix if where == "cluster" else name

    def new(self, where: str, name: str, spec: Json, **meta: Any) -> Json:
        make = gauge if where == "cluster" else widget
        return make(self.name(where, name), meta=meta, **spec)

    def both(self, *asked: Awaitable[Answer]) -> list[Answer]:
        """Ask both, and compare."""

        async def work() -> list[Answer]:
            return list(await asyncio.gather(*asked))

        answers = self.run(work())
        compared[f"generated, {self.form}"] += 1
        one, other = (caller.transcript[-1] for caller in self.callers)
        assert one.asked == other.asked
        assert not (text := difference(one, other)), text
        return answers

    def remember(self, where: str, name: str, answers: list[Answer]) -> None:
        for seen, answer in zip(self.seen, answers, strict=True):
            if answer.status < 300 and "spec" in answer.json:
                seen[f"{where}/{name}"] = answer.json

    @rule(
        where=WHERE, name=NAMES, spec=SPECS, client=CLIENTS, labels=LABELS | st.none(), strict=st.booleans()
    )
    def create(
        self, where: str, name: str, spec: Json, client: str, labels: Json | None, strict: bool
    ) -> None:
        body = self.new(where, name, spec, **({"labels": labels} if labels else {}))
        target = self.path(where) + ("?fieldValidation=Strict" if strict else "")
        self.remember(where, name, self.both(*(c.post(target, body, agent=client) for c in self.callers)))

    @rule(where=WHERE, name=NAMES)
    def get(self, where: str, name: str) -> None:
        target = f"{self.path(where)}/{self.name(where, name)}"
        self.remember(where, name, self.both(*(c.get(target) for c in self.callers)))

    @rule(where=st.sampled_from(["one", "two"]), query=st.sampled_from(["", "labelSelector=x=1", "limit=1"]))
    def listing(self, where: str, query: str) -> None:
        self.both(*(c.get(f"{self.path(where)}?{query}") for c in self.callers))

    @rule(where=WHERE, name=NAMES, spec=SPECS, client=CLIENTS, labels=LABELS | st.none(), dry=st.booleans())
    def replace(self, where: str, name: str, spec: Json, client: str, labels: Json | None, dry: bool) -> None:
        """PUT over what was last seen, current or not; over nothing when nothing was."""
        bodies = []
        for seen in self.seen:
            last = seen.get(f"{where}/{name}") or self.new(where, name, spec, resourceVersion="1")
            meta = {**last["metadata"], **({"labels": labels} if labels else {})}
            bodies.append({**last, "metadata": meta, "spec": spec})
        target = f"{self.path(where)}/{self.name(where, name)}{'?dryRun=All' if dry else ''}"
        answers = self.both(
            *(c.put(target, body, agent=client) for c, body in zip(self.callers, bodies, strict=True))
        )
        if not dry:
            self.remember(where, name, answers)

    @rule(
        where=WHERE,
        name=NAMES,
        piece=PIECES,
        client=CLIENTS,
        subresource=st.sampled_from(["", "", "/status"]),
    )
    def merge(self, where: str, name: str, piece: Json, client: str, subresource: str) -> None:
        target = f"{self.path(where)}/{self.name(where, name)}{subresource}"
        self.both(*(c.patch(target, piece, agent=client) for c in self.callers))

    @rule(where=WHERE, name=NAMES, operations=OPERATIONS, client=CLIENTS)
    def operate(self, where: str, name: str, operations: list[Json], client: str) -> None:
        target = f"{self.path(where)}/{self.name(where, name)}"
        self.both(*(c.patch(target, operations, "json", agent=client) for c in self.callers))

    @rule(
        where=st.sampled_from(["one", "two"]), name=NAMES, phase=st.sampled_from(["x", "y"]), client=CLIENTS
    )
    def report(self, where: str, name: str, phase: str, client: str) -> None:
        """PUT of the status."""
        target = f"{self.path(where)}/{self.name(where, name)}/status"
        found = self.both(*(c.get(target) for c in self.callers))
        if found[0].status == 200:
            bodies = [{**answer.json, "status": {"phase": phase}} for answer in found]
            self.both(
                *(c.put(target, body, agent=client) for c, body in zip(self.callers, bodies, strict=True))
            )

    @rule(where=WHERE, name=NAMES, policy=st.sampled_from(["Background", None]), pinned=st.booleans())
    def delete(self, where: str, name: str, policy: str | None, pinned: bool) -> None:
        target = f"{self.path(where)}/{self.name(where, name)}"
        options: list[Json] = [{"propagationPolicy": policy} if policy else {} for _ in self.seen]
        if pinned and all(f"{where}/{name}" in seen for seen in self.seen):
            for option, seen in zip(options, self.seen, strict=True):
                version = seen[f"{where}/{name}"]["metadata"]["resourceVersion"]
                option["preconditions"] = {"resourceVersion": version}
        self.both(
            *(c.delete(target, option or None) for c, option in zip(self.callers, options, strict=True))
        )

    @rule(where=st.sampled_from(["one", "two"]))
    def delete_all(self, where: str) -> None:
        self.both(*(c.delete(f"{self.path(where)}?labelSelector=x=1") for c in self.callers))

    def teardown(self) -> None:
        try:
            if hasattr(self, "callers"):
                self.run(self._end())
        finally:
            self.run(self.stack.aclose())

    async def _end(self) -> None:
        """One last object that every watch sees, and what each of them saw before it."""
        transcripts = []
        for caller, watches in zip(self.callers, self.watches, strict=True):
            caller.transcript.clear()
            for where in ("one", "two"):
                last = widget("end", meta={"labels": {"x": "1"}}, owner="me")
                await caller.post(in_namespace(self.space[where]), last, quiet=True)
            for watch in watches:
                await watch.until("end")
            transcripts.append(caller.transcript)
        found = compare(*transcripts)
        assert not found, "\n".join(found)


@pytest.mark.parametrize("form", ["memory", "sqlite"])
def test_sequences_that_nobody_thought_of(oracle: Oracle, form: str) -> None:
    Pair.loop, Pair.oracle, Pair.form = asyncio.new_event_loop(), oracle, form
    try:
        run_state_machine_as_test(
            Pair,
            settings=settings(
                max_examples=SOAK or 12,
                stateful_step_count=50 if SOAK else 30,
                deadline=None,
                database=None,
                derandomize=not SOAK,
                suppress_health_check=list(HealthCheck),
                print_blob=bool(SOAK),
                # Finding the shortest sequence takes minutes, which only a soak has.
                phases=list(Phase) if SOAK else [Phase.generate],
            ),
        )
    finally:
        Pair.loop.close()
