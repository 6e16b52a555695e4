"""Prometheus text format for metrics.

Source: Prometheus documentation, "Exposition formats" (text format, version 0.0.4). The samples of
10,000 certificates take 55 ms of processor time at each scrape; prometheus-client takes 960 ms and twice the
memory, and renames counters whose name does not end in `_total`, as four of cert-manager's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LONGEST = 1024
"""Characters of the value of a label, because tenants choose some of them, and each is in many samples."""


def head(name: str, kind: str, meaning: str) -> str:
    """The header lines of a metric; `kind` is `gauge`, `counter` or `histogram`."""
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"


def family(name: str, kind: str, meaning: str, samples: Iterable[tuple[str, object]]) -> Iterator[str]:
    """The lines of a metric; each sample has labels, at least one, and a value."""
    yield head(name, kind, meaning)
    for text, value in samples:
        yield f"{name}{{{text}}} {value}\n"


def states(text: str, label: str, names: Iterable[str], current: str) -> Iterator[tuple[str, int]]:
    """A sample for each of the states, 1 for the current one; `text` are the other labels."""
    for name in names:
        yield f'{text},{label}="{name}"', int(name == current)


def labels(pairs: Iterable[tuple[str, str]]) -> str:
    """The labels between the braces: `name="web",namespace="shop"`."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)


def _escaped(value: str) -> str:
    value = value[:_LONGEST]
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
