"""How a function of the Common Expression Language is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CARRIERS = ("CIDR", "Format", "IP", "Quantity", "Semver", "URL", "Violations")
"""The types that Kubernetes has and CEL has not."""

Raw = tuple[str, ...]
"""A value of one of those types."""


@dataclass(frozen=True, slots=True)
class Function:
    """One overload. `takes` and `gives` name types: `string`, `int`, `list(string)`, `Quantity`, …

    `run` raises `ValueError` with the text of an evaluation error.
    """

    takes: tuple[str, ...]
    gives: str
    run: Callable[..., Any]
    member: bool = False


def plain(*takes: str, gives: str, run: Callable[..., Any]) -> Function:
    """A function called by its name: `url(x)`."""
    return Function(takes, gives, run)


def member(*takes: str, gives: str, run: Callable[..., Any]) -> Function:
    """A function called on its first argument: `x.find(y)`."""
    return Function(takes, gives, run, member=True)
