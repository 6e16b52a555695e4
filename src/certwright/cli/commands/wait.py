"""`certwright wait`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from certwright.cli import completion, lazy
from certwright.cli.access import Session, session
from certwright.cli.bulk import ONE_AT_A_TIME, States, each_in_order, follow
from certwright.cli.errors import AlreadyReported, report, report_error
from certwright.cli.format import echo, reference
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.progress import make_display
from certwright.cli.resource_args import Selection, Target, not_found, selection_arguments
from certwright.diagnosis import certificates as diagnosis
from certwright.diagnosis import deliveries, related
from certwright.diagnosis.certificates import Diagnosis, RelatedObjects
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind

Json = dict[str, Any]
Test = Callable[[Json | None], bool]
_CONDITION = re.compile(r"condition=([A-Za-z0-9.\-/]+)(?:=(True|False|Unknown))?", re.IGNORECASE)
# What is reached sooner needs no words.
_QUIET_S = 1.0
# The objects behind a Certificate change without it.
_LOOK_EVERY_S = 1.0
# A failure is reported when it has lasted: a controller may be about to see what the user has corrected.
_SETTLED_S = 1.0
_PROGRESS_EVERY_S = 5.0
_TOGETHER_S = 0.1


@dataclass(frozen=True, slots=True)
class Goal:
    """What to wait for. `words` are for messages; `test` is of an object's state (None: does not exist);
    `condition` is a type with a status in lower case, empty for other goals. `explain` returns why a state
    does not pass; None: the diagnosis of the kind does."""

    words: str
    test: Test
    condition: str = ""
    status: str = ""
    explain: Callable[[Json, datetime], Diagnosis] | None = None


def parse_goal(_context: click.Context, _option: click.Parameter, value: str) -> Goal:
    """Parse `--for`."""
    if value == "delete":
        return Goal("deleted", lambda obj: obj is None)
    if value == "create":
        return Goal("created", lambda obj: obj is not None)
    if match := _CONDITION.fullmatch(value):
        kind, expected = match[1].lower(), (match[2] or "True").lower()
        return Goal("condition met", lambda obj: _status(obj, kind) == expected, match[1], expected)
    hint = f"; did you mean condition={value}?" if value.isalpha() and value[0].isupper() else ""
    known = "condition=TYPE, condition=TYPE=STATUS, delete, create"
    raise click.BadParameter(f"`{value}` is not one of {known}{hint}")


def _status(obj: Json | None, kind: str) -> str:
    """The status of a condition, unless it was observed on an older generation of the object."""
    for item in ((obj or {}).get("status") or {}).get("conditions") or []:
        if str(item.get("type", "")).lower() == kind:
            seen = item.get("observedGeneration")
            stale = seen is not None and obj is not None and seen < obj["metadata"].get("generation", 0)
            return "" if stale else str(item.get("status", "")).lower()
    return ""


@click.command(short_help="Wait until objects have a condition, or are gone.")
@click.argument("words", nargs=-1, required=True, metavar="KIND [NAME]…", shell_complete=completion.objects())
@click.option(
    "--for",
    "goal",
    metavar="WHAT",
    required=True,
    callback=parse_goal,
    help="condition=TYPE (status True), condition=TYPE=STATUS, delete or create.",
)
@timeout_option(default="30s", text="How long to wait")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@selector_option
@all_namespaces_option
@namespaced_server_options
@selection_arguments
@asynchronous
async def command(*, server: ServerOptions, selection: Selection, goal: Goal, timeout_s: float) -> None:
    """Wait until objects have a condition, exist, or are deleted.

    While it waits, it shows on standard error why the objects do not have the condition: live on a terminal,
    elsewhere one line for each change. More than twenty objects are counted. On a timeout the exit status is
    1, and one sentence for each object says what it waits for. It ends early, with status 1, when no object
    can reach the condition any more: the next attempt for a Certificate is after the timeout, or a request
    has been refused.

    \b
    Examples:
      certwright wait certificate web --for=condition=Ready
      certwright wait certificates --all -A --for=condition=Ready --timeout=2m
      certwright wait secret web-tls --for=delete
    """
    async with session(server) as here:
        targets = await selection.targets(here)
        items = [item for target in targets for item in await _choose(here, goal, target, selection)]
        waiter = Waiter(here, timeout_s, items)
        await waiter.wait()
    if waiter.failed:
        raise AlreadyReported


@dataclass(slots=True, eq=False)
class Item:
    """An object that is waited for."""

    goal: Goal
    kind: Kind[Json]
    namespace: str
    name: str
    state: Json | None = None
    is_known: bool = False
    changed_at: datetime | None = None
    story: Diagnosis | None = None
    hopeless_since: float | None = None


async def _choose(here: Session, goal: Goal, target: Target, selected: Selection) -> list[Item]:
    keys = await selected.keys(here, target)
    if not keys:
        echo(f"no {target.kind.plural} to wait for", err=True)
    return [Item(goal, target.kind, *key) for key in keys]


class Waiter:
    """Waits for any number of objects concurrently. `begun`: when the timeout starts, in the event loop's
    time; None: when the objects are known."""

    def __init__(
        self, here: Session, timeout_s: float, items: list[Item], *, begun: float | None = None
    ) -> None:
        self._client = here.client
        self._usual = here.namespace
        self._timeout_s = timeout_s
        self._begun = begun
        self._total = len(items)
        self._words_of_goal = items[0].goal.words if items else ""
        self._pending = items
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._is_live = sys.stderr.isatty()
        self._board = make_display(terminal=self._is_live, err=True)
        self._counted = 0
        self.failed = False

    async def wait(self) -> None:
        """Wait for all; reports every result, and sets `failed` unless all have reached their goal."""
        loop = asyncio.get_running_loop()
        async with self._following():
            # The timeout starts after the first lookup, when the objects are known.
            while not all(item.is_known for item in self._pending):
                await self._next_change(None)
            self._check_condition()
            begun = looked = counted = loop.time() if self._begun is None else self._begun
            try:
                while await self._settle() and loop.time() < begun + self._timeout_s:
                    now = loop.time()
                    if now >= looked:
                        looked = now + _LOOK_EVERY_S
                        await self._look()
                        self._give_up(loop.time(), begun)
                    if now >= begun + _QUIET_S or self._is_live:
                        counted = self._show(now, counted)
                    left = begun + self._timeout_s - loop.time()
                    if self._pending and left > 0:
                        await self._next_change(min(left, max(0.0, looked - loop.time()), _LOOK_EVERY_S))
            finally:
                self._board.close()
        await self._report_timeouts()

    @asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        """Keep the states up to date: by a watch for each of a few objects, or one for each namespace."""
        few = self._total <= ONE_AT_A_TIME
        groups: dict[tuple[Kind[Json], str, str], list[Item]] = {}
        for item in self._pending:
            groups.setdefault((item.kind, item.namespace, item.name if few else ""), []).append(item)
        tasks = [asyncio.create_task(self._follow(*group, items)) for group, items in groups.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, kind: Kind[Json], namespace: str, name: str, items: list[Item]) -> None:
        by_key = {(item.namespace, item.name): item for item in items}
        try:
            async with aclosing(follow(self._client, kind, namespace, name)) as changes:
                async for states in changes:
                    self._take(states, by_key)
        except Exception as error:  # It is raised by the task that waits.
            self._error = error
            self._changed.set()

    def _take(self, states: States, items: dict[tuple[str, str], Item]) -> None:
        is_first = not all(item.is_known for item in items.values())
        for key, state in states.items():
            if (item := items.get(key)) is not None:
                item.state, item.changed_at = state, datetime.now(UTC)
        if is_first:
            for item in items.values():
                item.is_known = True
        self._changed.set()

    async def _next_change(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        if self._total > ONE_AT_A_TIME:
            # All are looked through after a change: those within this time count as one.
            await asyncio.sleep(_TOGETHER_S)
        self._changed.clear()
        if self._error is not None:
            raise self._error

    def _check_condition(self) -> None:
        """Refuse a type of condition that no controller sets on the kind, unless an object has it."""
        for kind, wanted in {(item.kind, item.goal.condition) for item in self._pending}:
            known = diagnosis.CONDITION_TYPES.get(kind.resource)
            states = [item.state for item in self._pending if item.kind == kind]
            if (
                known is None
                or not wanted
                or wanted.lower() in map(str.lower, known)
                or any(_has(s, wanted) for s in states)
            ):
                continue
            if not known:
                states_of = " (`certwright get` shows their state)" if "acme" in kind.group else ""
                raise click.UsageError(
                    f"{kind.plural} have no conditions{states_of}; wait for delete or create"
                )
            near = lazy.difflib.get_close_matches(wanted.capitalize(), known, n=1)
            hint = f"; did you mean condition={near[0]}?" if near else ""
            raise click.UsageError(
                f"{kind.plural} never have a condition {wanted}, but {', '.join(known)}{hint}"
            )

    async def _settle(self) -> bool:
        """Report the objects that have reached the goal, or never will; returns whether any is left."""
        left: list[Item] = []
        for item in self._pending:
            if item.goal.test(item.state):
                self._print(f"{reference(item.kind, item.name)} {item.goal.words}{self._place(item)}")
            elif item.state is None and item.goal.condition:
                target = Target(item.kind, item.namespace, (item.name,))
                self._fail(
                    await not_found(self._client, f'{item.kind.resource} "{item.name}" not found', target)
                )
            else:
                left.append(item)
        self._pending = left
        return bool(left)

    async def _look(self) -> None:
        """Diagnose the objects, of which many only by themselves."""
        for item in self._pending:
            item.story = await self._diagnose(item, alone=len(self._pending) > ONE_AT_A_TIME)

    def _give_up(self, now: float, begun: float) -> None:
        """Report the objects whose failure lasts beyond the timeout."""
        end = datetime.now(UTC) + timedelta(seconds=begun + self._timeout_s - now)
        left = []
        for item in self._pending:
            story = item.story
            moment = story.next_attempt if story is not None else None
            if story is None or not (story.final or (moment is not None and moment > end)):
                item.hopeless_since = None
            elif item.hopeless_since is None:
                item.hopeless_since = now
            if item.hopeless_since is not None and now - item.hopeless_since >= _SETTLED_S:
                self._fail(f"{reference(item.kind, item.name)}{self._place(item)}: {story}")
            else:
                left.append(item)
        self._pending = left

    def _show(self, now: float, counted: float) -> float:
        """Show the progress; returns when the objects have been counted last."""
        done = self._total - len(self._pending)
        title = f"{done:,} of {self._total:,}: {self._words_of_goal}" if self._total > 1 else ""
        if self._total > ONE_AT_A_TIME and not self._is_live:
            if done == self._counted or now < counted + _PROGRESS_EVERY_S:
                return counted
            self._counted = done
            report(title, err=True)
            return now
        stories = {self._words(item): item.story for item in self._pending if item.story is not None}
        self._board.show(title, stories)
        return counted

    async def _report_timeouts(self) -> None:
        async def why(item: Item) -> Diagnosis | None:
            return await self._diagnose(item, alone=False)

        async with aclosing(each_in_order(self._pending, why, alone=lambda _item: False)) as results:
            async for item, story in results:
                reason = f": {story}" if story is not None else ""
                place = self._place(item)
                self._fail(
                    f"{reference(item.kind, item.name)}{place}: not within {self._timeout_s:g} s{reason}"
                )

    async def _diagnose(self, item: Item, *, alone: bool) -> Diagnosis | None:
        """Why the object has not reached the goal. `alone`: from the object alone."""
        state, goal = item.state, item.goal
        if state is None:
            return Diagnosis("does not exist yet")
        marked = state["metadata"].get("deletionTimestamp")
        if marked or not goal.condition:
            waits_for = ", ".join(state["metadata"].get("finalizers") or ())
            kept = f"; it waits for its finalizers: {waits_for}" if marked and waits_for else ""
            return Diagnosis(f"being deleted{kept}" if marked else "exists, and nothing has deleted it")
        if goal.explain is not None:
            return goal.explain(state, datetime.now(UTC))
        is_ready = (goal.condition.lower(), goal.status) == ("ready", "true")
        if item.kind.resource == related.DELIVERIES.resource and goal.status == "true":
            return deliveries.why_not(state, goal.condition.lower(), datetime.now(UTC))
        if item.kind.resource != related.CERTIFICATES.resource or not is_ready:
            return diagnosis.diagnose_other(state, goal.condition.lower())
        # A line is not printed again because time has passed.
        now = item.changed_at if item.changed_at and not self._is_live else datetime.now(UTC)
        if alone:
            return diagnosis.diagnose(RelatedObjects(state, hidden=("issuer", "secret")), now)
        try:
            objects = await related.read_related(self._client, state)
        except errors.ApiError:
            return None
        return diagnosis.diagnose(objects, now)

    def _print(self, line: str) -> None:
        if self._is_live and sys.stdout.isatty():
            self._board.print(line)
        else:
            echo(line)

    def _fail(self, sentence: str) -> None:
        self.failed = True
        if self._is_live:
            self._board.close()
        report_error(sentence)

    def _words(self, item: Item) -> str:
        return f"{item.kind.singular}/{item.name}{self._place(item)}"

    def _place(self, item: Item) -> str:
        return "" if item.namespace in ("", self._usual) else f" (namespace {item.namespace})"


def _has(obj: Json | None, kind: str) -> bool:
    conditions: Iterable[Json] = ((obj or {}).get("status") or {}).get("conditions") or []
    return any(str(item.get("type", "")).lower() == kind.lower() for item in conditions)
