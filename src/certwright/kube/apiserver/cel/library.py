"""The modules of the library that evaluates CEL, and of protobuf, for its messages.

Each is imported at its first use: together they take 9 MB, and most servers never compile a rule. They have
no types for mypy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


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
