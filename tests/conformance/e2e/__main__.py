"""cert-manager's own end-to-end tests against `certwright serve`: `make e2e`.

Starts BIND, Pebble and certwright on loopback, then the test program that `make e2e` has built, a process for
each suite and some of them at the same time. Ends with 1 when a case fails that is not a known deviation, or
when one of those passes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from conformance.e2e.chosen import DEVIATIONS, NOT_THERE, SUITES, LeftOut, Suite
from conformance.e2e.outcome import Outcome, outcome_of
from conformance.e2e.surroundings import Surroundings, surroundings
from support.programs import running, tool


def main() -> int:
    """Run what the arguments say. 0: all is as expected, 1: it is not, 2: it could not be tried."""
    arguments = _arguments()
    suites = _chosen(arguments.suites, arguments.focus)
    left_out = NOT_THERE if arguments.deviations else (*NOT_THERE, *DEVIATIONS)
    try:
        with _folder(arguments.keep) as folder, surroundings(folder) as around:
            print(f"certwright is ready; kubeconfig {around.kubeconfig}", flush=True)
            outcomes = list(_run_all(suites, left_out, around, folder, jobs=arguments.jobs))
    except (pytest.skip.Exception, pytest.fail.Exception, RuntimeError) as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return _summary(outcomes)


def _arguments() -> argparse.Namespace:
    names = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(prog="make e2e ARGS=…", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument(
        "--focus", metavar="REGEXP", help="the cases whose full name matches, instead of suites"
    )
    parser.add_argument(
        "--deviations", action="store_true", help="also run known deviations (some take minutes)"
    )
    parser.add_argument("--jobs", type=int, default=3, help="suites at the same time (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs, reports and data there")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(names):
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return arguments


def _chosen(names: Sequence[str], focus: str | None) -> tuple[Suite, ...]:
    if focus is not None:
        return (Suite("focus", focus),)
    return tuple(suite for suite in SUITES if not names or suite.name in names)


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="e2e-") as name:
        yield Path(name)


def _run_all(
    suites: Sequence[Suite], left_out: Sequence[LeftOut], around: Surroundings, folder: Path, *, jobs: int
) -> Iterator[Outcome]:
    """Yields as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_run, suite, left_out, around, folder) for suite in suites]
        try:
            for done in as_completed(running):
                yield done.result()
        finally:
            # Broken off (Ctrl-C): what has not begun is not begun any more.
            pool.shutdown(cancel_futures=True)


def _run(suite: Suite, left_out: Sequence[LeftOut], around: Surroundings, folder: Path) -> Outcome:
    print(f"{suite.name} …", flush=True)
    begun, log, report = time.monotonic(), folder / f"{suite.name}.log", folder / f"{suite.name}.json"
    command = [str(tool("cert-manager-e2e", made_by="e2e")), *around.flags, f"--report-dir={folder}"]
    command += [
        f"--ginkgo.json-report={report}",
        "--ginkgo.no-color",
        "--ginkgo.timeout=2h",
        "--test.timeout=0",
    ]
    command += [f"--ginkgo.focus={suite.focus}", *(f"--ginkgo.skip={left.pattern}" for left in left_out)]
    with running(command, log) as process:
        status = process.wait()
    try:
        outcome = outcome_of(suite, report)
    except (OSError, ValueError):
        outcome = Outcome(suite.name, broken=f"ended with {status}: {log.read_text()[-2000:]}")
    print(f"{suite.name}: {_figures([outcome])}, {time.monotonic() - begun:.0f} s", flush=True)
    return outcome


def _figures(outcomes: Sequence[Outcome]) -> str:
    passed = sum(outcome.passed() for outcome in outcomes)
    skipped = sum(outcome.skipped().total() for outcome in outcomes)
    run = sum(len(outcome.cases) for outcome in outcomes) - skipped
    known = sum(outcome.known_failures().total() for outcome in outcomes)
    return f"{passed} of {run} passed{f', {known} deviate as known' if known else ''}, {skipped} skipped"


def _summary(outcomes: Sequence[Outcome]) -> int:
    skipped = sum((outcome.skipped() for outcome in outcomes), Counter[str]())
    deviating = sum((outcome.known_failures() for outcome in outcomes), Counter[str]())
    wrong = [text for outcome in outcomes for text in outcome.wrong()]
    print(f"\nall: {_figures(outcomes)}")
    for title, reasons in (("skipped", skipped), ("deviates", deviating)):
        for reason, number in reasons.most_common():
            print(f"  {title} {number}: {reason}")
    for text in wrong:
        print(f"\nWRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
