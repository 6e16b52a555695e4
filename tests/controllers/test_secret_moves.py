"""Secrets that come, go and change their label while two watches tell of it late, each in its own time,
compared with what is true: nothing that exists is taken for missing, nothing that happens stays untold."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certwright.controllers.cache.secrets import Secrets
from certwright.kube.api import codec
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.kube.util.tasks import TaskSet
from certwright.resources import names
from support.world import settle

NAMES = ("a", "b")
State = dict[str, Any]


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def labelled(state: State) -> bool:
    return names.FAO_LABEL in state["metadata"]["labels"]


def version(state: State | Secret | None) -> tuple[str, int]:
    """Which object, and in which state of it."""
    if state is None:
        return ("", 0)
    if isinstance(state, Secret):
        return state.metadata.uid, int(state.metadata.resource_version)
    return state["metadata"]["uid"], int(state["metadata"]["resourceVersion"])


@dataclass
class Side:
    """One of the two watches: how far it has told the history."""

    wants_label: bool
    told_until: int = 0
    chunks: asyncio.Queue[bytes | None] | None = None


class Server:
    """The truth, and a history that is told as slowly as the test likes."""

    def __init__(self) -> None:
        self.revision = 100
        self.now: dict[str, State] = {}
        self.history: list[tuple[int, State | None, State | None]] = []
        self.sides = {wants: Side(wants) for wants in (True, False)}
        self.gate = asyncio.Event()
        self.gate.set()
        self.gets: Counter[str] = Counter()
        self._probes: dict[str, tuple[int, list[State]]] = {}
        self._numbers = itertools.count(1)

    def write(self, name: str, *, label: bool | None) -> State | None:
        """Make, change or (`label` None) delete a Secret."""
        self.revision += 1
        old = self.now.pop(name, None)
        new = None
        if label is not None:
            uid = old["metadata"]["uid"] if old else f"uid-{next(self._numbers)}"
            labels = {names.FAO_LABEL: "true"} if label else {"of": "somebody"}
            meta = {"name": name, "namespace": "default", "uid": uid, "labels": labels}
            new = {"metadata": {**meta, "resourceVersion": str(self.revision)}, "data": {}}
            self.now[name] = new
        self.history.append((self.revision, old, new))
        return new

    async def handle(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if path.endswith("/secrets"):
            given = {name: values[0] for name, values in parse_qs(query).items()}
            side = self.sides[not given["labelSelector"].startswith("!")]
            return self._watch(side) if "watch" in given else await self._list(side, given)
        name = path.rpartition("/")[2]
        self.gets[name] += 1
        state = self.now.get(name)
        await self.gate.wait()
        if state is None:
            return _answer(404, {"kind": "Status", "reason": "NotFound", "message": "no such Secret"})
        return _answer(200, state)

    async def _list(self, side: Side, given: dict[str, str]) -> Response:
        if (token := given.get("continue", "")) != "":
            revision, items = self._probes.pop(token)
        else:
            revision = int(given.get("resourceVersion", self.revision))
            items = [state for state in self._at(revision) if labelled(state) is side.wants_label]
        await self.gate.wait()
        meta: dict[str, str] = {"resourceVersion": str(revision)}
        if len(items) > 1:
            meta["continue"] = token = str(next(self._numbers))
            self._probes[token] = (revision, items[1:])
        side.told_until = revision
        return _answer(200, {"metadata": meta, "items": items[:1]})

    def _at(self, revision: int) -> list[State]:
        states: dict[str, State | None] = {}
        for written_at, old, new in self.history:
            if written_at <= revision and (state := new or old) is not None:
                states[state["metadata"]["name"]] = new
        return [state for state in states.values() if state is not None]

    def _watch(self, side: Side) -> Response:
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        side.chunks = chunks

        async def stream() -> AsyncIterator[bytes]:
            while (chunk := await chunks.get()) is not None:
                yield chunk

        return Response(200, {}, b"", stream=stream())

    def tell(self, side: Side, most: int = 1000, *, bookmark: bool = False) -> None:
        """Send the next events of the history, and perhaps a bookmark when it is at its end."""
        if side.chunks is None:
            return
        for revision, old, new in [move for move in self.history if move[0] > side.told_until][:most]:
            side.told_until = revision
            if (event := _event(side, revision, old, new)) is not None:
                side.chunks.put_nowait(msgspec.json.encode(event) + b"\n")
        if bookmark and side.told_until == self.revision:
            mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.revision)}}}
            side.chunks.put_nowait(msgspec.json.encode(mark) + b"\n")

    def expire(self, side: Side) -> None:
        """End the watch so that everything is listed again."""
        if side.chunks is not None:
            error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            side.chunks.put_nowait(msgspec.json.encode({"type": "ERROR", "object": error}) + b"\n")
            side.chunks = None


def _event(side: Side, revision: int, old: State | None, new: State | None) -> dict[str, Any] | None:
    was = old is not None and labelled(old) is side.wants_label
    is_ = new is not None and labelled(new) is side.wants_label
    if is_:
        return {"type": "MODIFIED" if was else "ADDED", "object": new}
    if not was or old is None:
        return None
    # As Kubernetes: the last state that was chosen, at the revision of the change.
    return {
        "type": "DELETED",
        "object": {**old, "metadata": {**old["metadata"], "resourceVersion": str(revision)}},
    }


def _answer(status: int, body: object) -> Response:
    return Response(status, {"content-type": "application/json"}, msgspec.json.encode(body))


@dataclass
class Read:
    """A read that was begun, and what was known then."""

    name: str
    task: asyncio.Task[Secret | None]
    truth: State | None
    shown: tuple[str, int]
    notified: int
    uses: int


class SecretMoves(RuleBasedStateMachine):
    """Whoever reads has said before that the name is in use, and is told of what changes afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.server = Server()
        self.clock = clock = TestClock(datetime(2026, 1, 1, tzinfo=UTC))
        client = Client(LocalTransport(self.server.handle, Identity("test")), user_agent="test")
        self.secrets = Secrets(client, clock, owner_of=lambda _: ())
        self.in_use: set[ObjectKey] = set()
        self.uses: Counter[str] = Counter()
        self.notified: Counter[str] = Counter()
        self.shown: dict[str, tuple[str, int]] = {}
        self.reads: list[Read] = []
        self.last: dict[str, Read] = {}
        self.secrets.add_use(self.in_use.__contains__)
        self.secrets.add_handler(lambda key, _states: self.notified.update([key.name]))
        self.tasks = TaskSet()

    @initialize(
        there=st.dictionaries(st.sampled_from(NAMES), st.booleans()),
        meanwhile=st.dictionaries(st.sampled_from(NAMES), st.booleans()),
    )
    def start(self, there: dict[str, bool], meanwhile: dict[str, bool] | None = None) -> None:
        for name, label in there.items():
            self.server.write(name, label=label)
            self.shown[name] = version(self.server.now[name])

        async def start() -> None:
            self.server.gate.clear()
            for informer in self.secrets.informers:
                self.tasks.start(informer.run(), name="informer")
            await settle()
            for name, label in (meanwhile or {}).items():
                self.server.write(name, label=label)
            self.server.gate.set()
            await settle()
            assert all(informer.synced.is_set() for informer in self.secrets.informers)

        self.runner.run(start())

    def _settle(self) -> None:
        async def run() -> None:
            await settle()
            assert self.tasks.error is None, self.tasks.error

        self.runner.run(run())
        self._check_reads()

    @rule(name=st.sampled_from(NAMES), label=st.sampled_from([True, False, None]))
    def somebody_writes(self, name: str, label: bool | None) -> None:
        if label is not None or name in self.server.now:
            self.server.write(name, label=label)

    @rule(name=st.sampled_from(NAMES), label=st.booleans())
    def we_write(self, name: str, label: bool) -> None:
        made = self.server.write(name, label=label)
        self._put(made)

    @precondition(lambda self: self.server.now)
    @rule(name=st.sampled_from(NAMES))
    def we_delete(self, name: str) -> None:
        if (state := self.server.now.get(name)) is None:
            return
        self.server.write(name, label=None)

        async def forget() -> None:
            self.secrets.forget(codec.from_dict(SECRETS, state))
            await settle()

        self.runner.run(forget())
        self._check_reads()

    def _put(self, state: State | None) -> None:
        async def put() -> None:
            assert state is not None
            self.secrets.put(codec.from_dict(SECRETS, state))
            await settle()

        self.runner.run(put())
        if state is not None:
            self.shown[state["metadata"]["name"]] = version(state)
        self._check_reads()

    @rule(wants=st.booleans(), most=st.integers(1, 3), bookmark=st.booleans())
    def a_watch_tells(self, wants: bool, most: int, bookmark: bool) -> None:
        side = self.server.sides[wants]
        before = side.told_until
        self.server.tell(side, most, bookmark=bookmark)
        if side.chunks is not None:
            self._has_shown(side, before)
        self._settle()

    def _has_shown(self, side: Side, after: int) -> None:
        for revision, _, new in self.server.history:
            if after < revision <= side.told_until and new is not None and labelled(new) is side.wants_label:
                name = new["metadata"]["name"]
                self.shown[name] = max(self.shown.get(name, ("", 0)), version(new), key=lambda v: v[1])

    @rule(wants=st.booleans())
    def a_watch_expires(self, wants: bool) -> None:
        self.server.expire(self.server.sides[wants])
        self._settle()

    @rule(is_open=st.booleans())
    def answers_come_or_not(self, is_open: bool) -> None:
        if is_open:
            self.server.gate.set()
        else:
            self.server.gate.clear()
        self._settle()

    @rule(name=st.sampled_from(NAMES), is_used=st.booleans())
    def a_reference_comes_or_goes(self, name: str, is_used: bool) -> None:
        if is_used:
            self.in_use.add(key(name))
        elif key(name) in self.in_use:
            self.in_use.discard(key(name))
            self.uses[name] += 1

    @rule(name=st.sampled_from(NAMES))
    def somebody_reads(self, name: str) -> None:
        self.in_use.add(key(name))

        async def read() -> None:
            self.reads.append(
                Read(
                    name,
                    asyncio.ensure_future(self.secrets.get(key(name))),
                    self.server.now.get(name),
                    self.shown.get(name, ("", 0)),
                    self.notified[name],
                    self.uses[name],
                )
            )
            await settle()

        self.runner.run(read())
        self._check_reads()

    @rule(which=st.integers(0, 5))
    def a_reader_gives_up(self, which: int) -> None:
        if which < len(self.reads):
            self.reads.pop(which).task.cancel()
            self._settle()

    def _check_reads(self) -> None:
        for read in [read for read in self.reads if read.task.done()]:
            self.reads.remove(read)
            self._judge(read, read.task.result())
            self.last[read.name] = read

    def _judge(self, read: Read, secret: Secret | None) -> None:
        history = [new for _, _, new in self.server.history if new is not None]
        now = self.server.now.get(read.name)
        if secret is not None:
            assert version(secret) in map(version, history)
            assert version(secret)[1] >= read.shown[1] or read.shown[0] != version(secret)[0]
        elif read.truth is not None and now is not None:
            # One that was never shown cannot be known of; nor one that has been made anew since.
            is_same = read.truth["metadata"]["uid"] == now["metadata"]["uid"] == read.shown[0]
            assert not is_same, f"{read.name} exists, and was not found"

    @rule()
    def all_is_quiet(self) -> None:
        self.server.gate.set()
        for _ in range(3):
            self._settle()
            # A watch that has failed twice in a row waits before it is opened again.
            self.clock.advance(timedelta(minutes=1))
            self._settle()
            for side in self.server.sides.values():
                self.server.tell(side, bookmark=True)
                self._has_shown(side, 0)
        self._settle()
        assert not self.reads
        for name in NAMES:
            self._is_right(name)

    def _is_right(self, name: str) -> None:
        truth, last = self.server.now.get(name), self.last.get(name)
        if last is not None and key(name) in self.in_use and last.uses == self.uses[name]:
            is_news = version(last.task.result()) != version(truth)
            assert not is_news or self.notified[name] > last.notified, f"nobody was told of {name}"
        if key(name) not in self.in_use:
            return
        secret = self.runner.run(self.secrets.get(key(name)))
        assert version(secret) == version(truth)
        before = self.server.gets[name]
        assert version(self.runner.run(self.secrets.get(key(name)))) == version(truth)
        assert self.server.gets[name] == before, f"{name} was asked for again though nothing has changed"

    @invariant()
    def nobody_has_failed(self) -> None:
        if hasattr(self, "tasks"):
            assert self.tasks.error is None, self.tasks.error

    def teardown(self) -> None:
        async def close() -> None:
            self.server.gate.set()
            for read in self.reads:
                read.task.cancel()
            await self.tasks.close()

        self.runner.run(close())
        self.runner.close()


SecretMoves.TestCase.settings = settings(stateful_step_count=30)
TestSecretsAreNeverLost = SecretMoves.TestCase


@contextmanager
def begun(there: dict[str, bool]) -> Iterator[SecretMoves]:
    """Without Hypothesis: with these Secrets there, labelled or not."""
    machine = SecretMoves()
    try:
        machine.start(there)
        yield machine
    finally:
        machine.teardown()


@pytest.mark.parametrize("label", [True, False])
def test_a_secret_between_two_watches_is_asked_for(label: bool) -> None:
    """The one watch has told that it is gone, the other one has not yet told that it has come."""
    with begun({"a": label}) as machine:
        machine.somebody_reads("a")
        machine.somebody_writes("a", not label)
        machine.a_watch_tells(label, 1, False)
        machine.somebody_reads("a")
        machine.all_is_quiet()


def test_those_who_ask_at_the_same_time_share_one_answer() -> None:
    with begun({"a": False}) as machine:
        machine.answers_come_or_not(is_open=False)
        for _ in range(20):
            machine.somebody_reads("a")
        machine.a_reader_gives_up(3)
        machine.all_is_quiet()
        assert machine.server.gets["a"] == 1


def test_when_the_one_who_asks_gives_up_another_one_asks() -> None:
    with begun({"a": False}) as machine:
        machine.answers_come_or_not(is_open=False)
        for _ in range(5):
            machine.somebody_reads("a")
        machine.a_reader_gives_up(0)
        machine.all_is_quiet()
        assert machine.server.gets["a"] == 2


@pytest.mark.parametrize("is_ours", [True, False])
def test_one_that_is_deleted_while_it_is_read_is_not_there(is_ours: bool) -> None:
    with begun({"a": False}) as machine:
        machine.answers_come_or_not(is_open=False)
        machine.somebody_reads("a")
        if is_ours:
            machine.we_delete("a")
        else:
            machine.somebody_writes("a", None)
            machine.a_watch_tells(wants=False, most=1, bookmark=False)
        machine.all_is_quiet()
        assert machine.last["a"].task.result() is None
