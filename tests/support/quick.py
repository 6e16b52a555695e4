"""The pytest plugin behind `make test`: with `--quick`, tests that start another process are left out.

Which tests those are is read from the sources, not from a list: a test starts a process if it, a fixture that
it takes, or a function that one of them names does so. A module of which no test is left is not even
imported. What this overlooks is skipped when it tries: an audit hook refuses to start processes.
A test with the marker `smoke` runs anyway; one with the marker `long`, which takes seconds for a reason, does
not. Of a test with the marker `every(n)`, say a crash after each of many writes, every n-th case runs, the
first included.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import shutil
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.real import MISSING

TESTS = Path(__file__).parents[1]
_ALL = "*"
_STARTERS = {
    *(f"subprocess.{name}" for name in ("Popen", "call", "check_call", "check_output", "run")),
    *(f"asyncio.create_subprocess_{how}" for how in ("exec", "shell")),
    "os.fork",
    "pytest.mark.real",
    "support.real.missing",
}
_MEMORY, _MEMORY_BYTES = "/dev/shm", 4 << 30
_AUDITED = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that start another process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:
            # A store waits for the disk at each write; other tests see what survives a loss of power.
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
        # The process that distributes the tests reads the sources, once for all workers.
        given: str = getattr(config, "workerinput", {}).get("starting_tests", "")
        quick = Quick(json.loads(given) if given else starting_tests())
        config.pluginmanager.register(quick, "quick")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for want of programs, and how to get those."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    if absent := [reason for reason in reasons if MISSING in reason]:
        targets = sorted({name for reason in absent for name in re.findall(r"`(make [\w-]+)`", reason)})
        programs = sorted(
            {name for reason in absent for name in re.findall(rf"{MISSING}(\S+) is not", reason)}
        )
        terminalreporter.write_line(
            f"{len(absent)} tests were skipped because programs are missing; .ci/run installs them: "
            + ", ".join(targets + programs)
        )


class Quick:
    """The hooks of a quick run."""

    def __init__(self, starting: dict[str, list[str]]) -> None:
        self._starting = starting
        self._running: pytest.Item | None = None
        self._refused = ""
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGUSR1, self._skip)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give the names to a worker of pytest-xdist."""
        node.workerinput["starting_tests"] = json.dumps(self._starting)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave modules out of which no test is left."""
        return True if _ALL in self._starting.get(str(collection_path), ()) else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests that start processes, and parameters that need a program."""
        left_out, kept, cases = list[pytest.Item](), list[pytest.Item](), Counter[str]()
        for item in items:
            case = item.nodeid.partition("[")[0]
            cases[case] += 1
            every = item.get_closest_marker("every")
            is_left_out = not item.get_closest_marker("smoke") and (
                item.get_closest_marker("real") is not None
                or item.get_closest_marker("long") is not None
                or (every is not None and (cases[case] - 1) % every.args[0] != 0)
                or case.split("::")[1] in self._starting.get(str(item.path), ())
            )
            (left_out if is_left_out else kept).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Refuse to start processes meanwhile."""
        self._refused = ""
        return (yield from self._refusing(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """As the setup."""
        return (yield from self._refusing(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """As the setup."""
        return (yield from self._refusing(item))

    def _refusing(self, item: pytest.Item) -> Generator[None, object, object]:
        self._running = None if item.get_closest_marker("smoke") else item
        try:
            return (yield)
        finally:
            # The signal of a refusal that comes later would end pytest, not the test.
            self._running = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test that was refused a process is skipped, whatever it made of the refusal."""
        report = yield
        if self._refused and report.outcome != "passed":
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"{_REFUSED}: {self._refused}")
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many tests are left out."""
        number = sum(len(set(names) - {_ALL}) for names in self._starting.values())
        terminalreporter.write_line(
            f"{number} tests that start a process or take long were left out: make test ALL=1"
        )

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._running is not None and event in _AUDITED:
            self._refused = str(arguments[0]) if arguments else event
            # Where another thread is refused, the test may wait for its answer for ever.
            main = threading.main_thread().ident or 0
            threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGUSR1]).start()
            self._skip()

    def _skip(self, *_: object) -> None:
        if self._running is not None and self._refused:
            raise pytest.skip.Exception(f"{_REFUSED}: {self._refused}")


_REFUSED = "not with --quick: starts a process"


def starting_tests(root: Path = TESTS) -> dict[str, list[str]]:
    """The names of the tests that start a process by their module, with "*" where no other test is in it."""
    gc.disable()  # Half a million nodes and no cycle.
    try:
        modules = {path: _Module(path, root) for path in sorted(root.rglob("*.py"))}
    finally:
        gc.enable()
    conftests = {path.parent: module for path, module in modules.items() if path.name == "conftest.py"}
    users = defaultdict[str, set[str]](set)
    for path, module in modules.items():
        nearby = [module, *(conftests[folder] for folder in path.parents if folder in conftests)]
        for name, used in module.uses.items():
            user = f"{module.name}.{name}"
            for other in used:
                # To use `module.Class.method` is to use the class.
                parts = module.full(other).split(".")
                for end in range(1, len(parts) + 1):
                    users[".".join(parts[:end])].add(user)
            for asked in module.asks[name]:
                if owner := next((near for near in nearby if asked in near.fixtures), None):
                    users[owner.full(asked)].add(user)
    starting, reached = set[str](), set(_STARTERS)
    while reached:
        starting |= reached
        reached = {user for name in reached for user in users.get(name, ())} - starting
    result = {}
    for path, module in modules.items():
        is_starting = [f"{module.name}.{name}" in starting for name in module.tests]
        if f"{module.name}.pytestmark" in starting or (is_starting and all(is_starting)):
            result[str(path)] = [*module.tests, _ALL]
        elif any(is_starting):
            result[str(path)] = [name for name, is_it in zip(module.tests, is_starting, strict=True) if is_it]
    return result


class _Module:
    """A source file: which of its definitions uses which names."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = ".".join(path.relative_to(root).with_suffix("").parts)
        self.imported: dict[str, str] = {}
        self.fixtures: set[str] = set()
        self.tests: list[str] = []
        self.uses: dict[str, set[str]] = defaultdict(set)
        self.asks: dict[str, set[str]] = defaultdict(set)
        """The parameters of tests and fixtures, and the strings in their decorators: names of fixtures."""
        prefix = ("test", "Test") if path.name.startswith("test_") else ()
        for node in ast.parse(path.read_bytes()).body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names, marks = [node.name], node.decorator_list
                    if isinstance(node, ast.ClassDef):
                        arguments = []
                    else:
                        arguments = [*node.args.args, *node.args.kwonlyargs]
                    if any("pytest.fixture" in self._names(mark) for mark in marks):
                        self.fixtures.add(node.name)
                    elif not node.name.startswith(prefix):
                        arguments = []
                    self.asks[node.name].update(argument.arg for argument in arguments)
                case ast.Assign():
                    names = [name.id for name in node.targets if isinstance(name, ast.Name)]
                    marks, arguments = [node.value], []
                case _:
                    names, marks = ["<module>"], list[ast.expr]()
            used = set(self._names(node))
            for name in names:
                self.uses[name] |= used
                self.asks[name].update(
                    part.value
                    for mark in marks
                    for part in ast.walk(mark)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                if name.startswith(prefix):
                    self.tests.append(name)
        self.fixtures |= self.imported.keys()

    def full(self, name: str) -> str:
        """A dotted name in this module as others would write it."""
        first, dot, rest = name.partition(".")
        return self.imported.get(first, f"{self.name}.{first}") + dot + rest

    def _names(self, node: ast.AST) -> Iterator[str]:
        """The dotted names in a piece of code without its annotations; imports are noted down."""
        todo = [node]
        while todo:
            match node := todo.pop():
                case ast.Name():
                    yield node.id
                case ast.Attribute():
                    parts, inner = [node.attr], node.value
                    while isinstance(inner, ast.Attribute):
                        parts.append(inner.attr)
                        inner = inner.value
                    if isinstance(inner, ast.Name):
                        yield ".".join((inner.id, *reversed(parts)))
                    else:
                        todo.append(inner)
                case ast.ImportFrom() | ast.Import():
                    source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                    self.imported |= {name.asname or name.name: source + name.name for name in node.names}
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    defaults = (value for value in (*node.args.defaults, *node.args.kw_defaults) if value)
                    todo += (*node.decorator_list, *defaults, *node.body)
                case ast.AnnAssign():
                    todo += (node.value,) if node.value else ()
                case _:
                    todo += ast.iter_child_nodes(node)
