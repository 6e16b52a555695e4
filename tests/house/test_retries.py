"""docs/retries.md: each figure is that of the constant or flag beside it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from certwright.cli.main import program
from certwright.kube.util.durations import parse_duration

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"
_UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400, "attempts": 1}
_FIGURE = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?) (ms|s|min|h|d|attempts)\b")
_SOURCE = re.compile(r"`(--[a-z0-9-]+|[\w/]+\.py:[\w.]+)(?:\((\d+)\))?`(?: \((count|ms|last)\))?")


def rows() -> Iterator[tuple[str, str, str]]:
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0] != "what waits" and not cells[0].startswith("---"):
            yield cells[0], cells[1], cells[2]


def default_of(flag: str) -> Any:
    context = click.Context(program)
    for name in ("serve", "controllers"):
        command = program.get_command(context, name)
        assert command is not None
        for option in command.params:
            if flag in option.opts:
                return option.default
    raise AssertionError(f"there is no flag {flag}")


def constant(place: str, argument: str) -> Any:
    path, _, name = place.partition(":")
    module = importlib.import_module(f"certwright.{path.removesuffix('.py').replace('/', '.')}")
    owner, _, part = name.partition(".")
    value = getattr(module, owner)
    if part:
        return inspect.signature(value).parameters[part].default
    return value(int(argument)) if argument else value


def seconds(value: Any) -> list[float]:
    if isinstance(value, tuple):
        return [number for item in value for number in seconds(item)]
    if isinstance(value, str):
        value = parse_duration(value)
    return [value.total_seconds() if isinstance(value, timedelta) else float(value)]


def expected(sources: str) -> list[float]:
    delays: list[float] = []
    for place, argument, unit in _SOURCE.findall(sources):
        value = default_of(place) if place.startswith("--") else constant(place, argument)
        delays += [number / 1000 if unit == "ms" else number for number in seconds(value)]
    return delays


@pytest.mark.parametrize(("who", "how_long", "sources"), list(rows()))
def test_the_figures_are_those_of_the_constants(who: str, how_long: str, sources: str) -> None:
    shown = [float(number) * _UNITS[unit] for number, unit in _FIGURE.findall(how_long)]
    if "count" in sources and not shown:
        shown = [float(number) for number in re.findall(r"\d+", how_long)]
    delays = expected(sources)
    if "(last)" in sources:
        shown = shown[-1:]
    assert shown == pytest.approx(delays), who


def test_the_page_has_the_waits_of_every_part() -> None:
    assert len(list(rows())) > 50
