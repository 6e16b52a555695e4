"""Declarations of CEL functions, and the modules of the library that evaluates CEL.

The library's modules, and those of protobuf for its messages, are imported at their first use: together they
take 9 MB, and most servers never compile a rule. They have no types for mypy.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import msgspec


class _Module:
    """Stands for the module of that name, until its first use and afterwards."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        module = import_module(self._name)
        self.__dict__.update(vars(module))
        return getattr(module, name)


cel: Any = _Module("cel_expr_python.cel")
descriptor: Any = _Module("google.protobuf.descriptor")
descriptor_pb2: Any = _Module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = _Module("google.protobuf.descriptor_pool")
duration_pb2: Any = _Module("google.protobuf.duration_pb2")
message_factory: Any = _Module("google.protobuf.message_factory")
struct_pb2: Any = _Module("google.protobuf.struct_pb2")
timestamp_pb2: Any = _Module("google.protobuf.timestamp_pb2")
wrappers_pb2: Any = _Module("google.protobuf.wrappers_pb2")


_AUTHORIZER_TYPES = ("Authorizer", "Decision", "GroupCheck", "PathCheck", "ResourceCheck")
CARRIERS = ("CIDR", "Format", "IP", "Quantity", "Semver", "URL", "Violations", *_AUTHORIZER_TYPES)
"""The types that Kubernetes adds to CEL."""

Raw = tuple[str, ...]
"""A value of one of those types."""


class Carried(NamedTuple):
    """Such a value, as the value of a variable."""

    kind: str
    raw: Raw


ANY = "T"
"""A type parameter: any type, the same wherever it is named in one overload."""


class Function(msgspec.Struct, frozen=True):
    """One overload. `takes` and `gives` name types: `string`, `int`, `list(string)`, `Quantity`, …, `ANY`.

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
