"""What came out of a suite: the cases of Ginkgo's report, judged by what is known of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.e2e.chosen import DEVIATIONS, NOT_THERE, Suite, reason_of


@dataclass(frozen=True, slots=True)
class Case:
    """One test; `state` is Ginkgo's word, `said` why it failed or skipped itself."""

    name: str
    state: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The cases of a suite that were chosen, run or not. `broken` says why there is no report."""

    suite: str
    cases: tuple[Case, ...] = ()
    broken: str = ""

    def passed(self) -> int:
        return sum(case.state == "passed" for case in self.cases)

    def wrong(self) -> Iterator[str]:
        """What must not be: unknown failures, known ones that are none any more, no cases at all."""
        if self.broken or not self.cases:
            yield f"{self.suite}: {self.broken or 'no test has such a name'}"
        for case in self.cases:
            deviation = reason_of(case.name, DEVIATIONS)
            if case.state == "passed" and deviation is not None:
                yield f"{case.name}\n    passes, although it is listed as a deviation: {deviation}"
            if case.state not in ("passed", "skipped") and deviation is None:
                yield f"{case.name}\n    {case.state}: {case.said}"

    def known_failures(self) -> Counter[str]:
        """The reasons of deviations that were run and failed, and how many cases each."""
        reasons = (reason_of(c.name, DEVIATIONS) for c in self.cases if c.state not in ("passed", "skipped"))
        return Counter(reason for reason in reasons if reason is not None)

    def skipped(self) -> Counter[str]:
        """The reasons of what was not run, and how many cases each."""
        return Counter(
            reason_of(case.name, (*NOT_THERE, *DEVIATIONS)) or f"the suite skips it: {case.said or 'no word'}"
            for case in self.cases
            if case.state == "skipped"
        )


def outcome_of(suite: Suite, report: Path) -> Outcome:
    """Read Ginkgo's report in JSON. Raises `OSError` and `ValueError` where there is none."""
    specs = json.loads(report.read_text())[0]["SpecReports"]
    cases = (_case(spec) for spec in specs if spec["LeafNodeType"] == "It")
    return Outcome(suite.name, tuple(case for case in cases if suite.holds(case.name)))


def _case(spec: dict[str, Any]) -> Case:
    name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
    said = spec.get("Failure", {}).get("Message", "")
    return Case(name, spec["State"], " ".join(said.split())[:600])
