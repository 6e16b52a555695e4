"""`certwright wait`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import diagnosis, related
from certwright.cli.access import Session, session
from certwright.cli.bulk import follow
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.format import echo, reference
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.resource_args import Selection, Target, selection_arguments
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind

Json = dict[str, Any]
Test = Callable[[Json | None], bool]
_CONDITION = re.compile(r"condition=([A-Za-z0-9.\-/]+)(?:=(True|False|Unknown))?", re.IGNORECASE)


def parse_goal(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, Test]:
    """Parse `--for`: words for the message, and a test of an object's state (None: does not exist)."""
    if value == "delete":
        return "deleted", lambda obj: obj is None
    if value == "create":
        return "created", lambda obj: obj is not None
    if match := _CONDITION.fullmatch(value):
        kind, expected = match[1].lower(), (match[2] or "True").lower()
        return "condition met", lambda obj: _status(obj, kind) == expected
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
@click.argument("words", nargs=-1, required=True, metavar="KIND [NAME]…")
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
async def command(
    *, server: ServerOptions, selection: Selection, goal: tuple[str, Test], timeout_s: float
) -> None:
    """Wait until objects have a condition, exist, or are deleted.

    On a timeout the exit status is 1, and for every Certificate that is not ready yet one sentence
    says what it waits for.

    \b
    Examples:
      certwright wait certificate web --for=condition=Ready
      certwright wait certificates --all -A --for=condition=Ready --timeout=2m
      certwright wait secret web-tls --for=delete
    """
    async with session(server) as here:
        targets = await selection.targets(here)
        waiter = _Waiter(here, goal, timeout_s)
        chosen = [item for target in targets for item in await _choose(here, target, selection)]
        results = await asyncio.gather(*(waiter.wait(*item) for item in chosen))
    if not all(results):
        raise AlreadyReported


async def _choose(here: Session, target: Target, selected: Selection) -> list[tuple[Kind[Json], str, str]]:
    keys = await selected.keys(here, target)
    if not keys:
        echo(f"no {target.kind.plural} to wait for", err=True)
    return [(target.kind, *key) for key in keys]


class _Waiter:
    """Waits for one goal, for any number of objects concurrently."""

    def __init__(self, here: Session, goal: tuple[str, Test], timeout_s: float) -> None:
        self._client = here.client
        self._usual = here.namespace
        self._words, self._test = goal
        self._timeout_s = timeout_s

    async def wait(self, kind: Kind[Json], namespace: str, name: str) -> bool:
        """Return whether the goal was reached in time; reports either result."""
        absent_is_final = self._words == "condition met"
        async with aclosing(follow(self._client, kind, name, namespace)) as states:
            # The timeout starts after the first lookup, when the object is known.
            state = await anext(states)
            try:
                async with asyncio.timeout(self._timeout_s):
                    while not self._test(state):
                        if state is None and absent_is_final:
                            report_error(f'{kind.resource} "{name}" not found')
                            return False
                        state = await anext(states)
            except TimeoutError:
                why = await self._why(kind, state)
                place = self._place(namespace)
                report_error(f"{reference(kind, name)}{place}: not within {self._timeout_s:g} s{why}")
                return False
        echo(f"{reference(kind, name)} {self._words}{self._place(namespace)}")
        return True

    def _place(self, namespace: str) -> str:
        return "" if namespace in ("", self._usual) else f" (namespace {namespace})"

    async def _why(self, kind: Kind[Json], state: Json | None) -> str:
        if kind.kind != "Certificate" or state is None:
            return ""
        try:
            around = await related.around(self._client, state)
        except errors.ApiError:
            return ""
        return f": {diagnosis.diagnose(around, datetime.now(UTC))}"
