"""Typed decoding in several threads, from the first use of a class on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "certwright"
GATE = SOURCE / "kube" / "util" / "decoders.py"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != GATE)


def run(script: str) -> None:
    """Run a script in a process of its own; a segmentation fault is a status of -11."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


FIRST_USES = {
    "convert": "convert({name: {}}, one)",
    "JSON": "json_decoder(one).decode(json.encode({name: {}}))",
    "MessagePack": "msgpack_decoder(one).decode(msgpack.encode({name: {}}))",
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_every_struct_of_the_program_survives_its_first_use_by_two_threads(use: str) -> None:
    """One thread pauses inside every class that it builds. With msgspec's own functions the other one then
    reads a member without a type, and the process ends with SIGSEGV."""
    run(f"""
        import contextlib, importlib, pkgutil, threading, time, types
        import msgspec
        from msgspec import _utils, json, msgpack
        import certwright
        from certwright.kube.util.decoders import convert, json_decoder, msgpack_decoder

        for module in pkgutil.walk_packages(certwright.__path__, "certwright."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)

        def all_below(kind):
            for one in kind.__subclasses__():
                yield one
                yield from all_below(one)

        # A class is defined after those that it is made of: here they come before them.
        structs = list(dict.fromkeys(all_below(msgspec.Struct)))[::-1]
        assert len(structs) > 150, len(structs)

        def pausing(obj):
            time.sleep(0.001)
            return original(obj)

        # msgspec keeps the function, so that only its code can be replaced.
        function = _utils.get_class_annotations
        _utils.original = types.FunctionType(function.__code__, function.__globals__)
        _utils.time = time
        function.__code__ = pausing.__code__
        barrier = threading.Barrier(2)

        def work():
            for one in structs:
                barrier.wait()
                for name in one.__struct_encode_fields__[::-1]:
                    with contextlib.suppress(msgspec.MsgspecError, TypeError, NameError):
                        {use}

        threads = [threading.Thread(target=work) for _ in range(2)]
        [one.start() for one in threads], [one.join() for one in threads]
    """)


def typed_decoding(tree: ast.Module) -> Iterator[int]:
    """The lines that give msgspec a type to decode to: a decoder with a type, `convert`, `decode(type=…)`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="msgspec" | "msgspec.json" | "msgspec.msgpack", names=names):
                if {name.name for name in names} & {"convert", "Decoder", "decode", "json", "msgpack"}:
                    yield node.lineno
            case ast.Call(func=(ast.Attribute(attr=name) | ast.Name(id=name)) as function, args=arguments):
                is_typed = any(word.arg == "type" for word in node.keywords)
                of_msgspec = name == "convert" or (name == "Decoder" and (arguments or is_typed))
                if (of_msgspec and ast.unparse(function).startswith("msgspec.")) or (
                    "decode" in name and is_typed
                ):
                    yield node.lineno


def test_typed_decoding_goes_through_one_module() -> None:
    violations = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in MODULES
        if re.search("msgspec|decode", text := path.read_text())
        for line in typed_decoding(ast.parse(text))
    ]
    assert not violations, "use certwright.kube.util.decoders, which builds the types under a lock"
