"""The reference server, once for all tests of a process; and what the comparisons come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from conformance.differences import compared, used
from support.oracle import Oracle, running_oracle

_COUNTERS = {"compared": compared, "used": used}


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """A reference server that is running."""
    with running_oracle() as reference:
        yield reference


@pytest.fixture(autouse=True)
def counted(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Attach to a test's report what it compared: reports come back from other processes, globals do not."""
    before = {name: counter.copy() for name, counter in _COUNTERS.items()}
    yield
    for name, counter in _COUNTERS.items():
        if grown := counter - before[name]:
            record_property(f"oracle:{name}", dict(grown))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was compared, and what differed."""
    totals: dict[str, Counter[str]] = {name: Counter() for name in _COUNTERS}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if report.when == "teardown" and name.startswith("oracle:"):
                    totals[name.removeprefix("oracle:")].update(value)
    for form, count in sorted(totals["compared"].items()):
        terminalreporter.write_line(f"compared with the reference ({form}): {count} answers")
    for reason, count in totals["used"].most_common():
        terminalreporter.write_line(f"differs as meant, {count} times: {reason}")
