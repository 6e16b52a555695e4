"""Two ways to call the program from tests: in this process, and as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
AT_WORK = "certwright's controllers are at work on https://127.0.0.1:"
PATIENT = ("--timeout=250s",)
"""For `wait` and `run`, whose own patience may be too short on a slow machine."""
_ENDS_WITHIN_S = 120
# `python -m certwright`, which takes its time to end. Within the two seconds that a user waits a slow machine
# may not have done what takes a tenth of one elsewhere, and would say so on standard error.
_PROGRAM = f"""
import runpy
from certwright.cli import daemon
assert daemon._CLOSE_S < 2
daemon._CLOSE_S = {_ENDS_WITHIN_S}
runpy.run_module("certwright", run_name="__main__", alter_sys=True)
"""

# A shell that runs the tests in the background has them ignore SIGINT, and so would what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str


Cli = Callable[..., Outcome]


class Process:
    """The program as a process of its own. `prologue` is Python that it runs first."""

    def __init__(self, *words: str, cwd: Path, prologue: str = "") -> None:
        if words[0] in ("serve", "controllers") and "--log-level" not in words:
            # The tests look at what is printed besides the log of a normal run.
            words = (*words, "--log-level", "warning")
        environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", prologue + _PROGRAM, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def line(self) -> str:
        """The next line of its standard output; empty when it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def error_line(self) -> str:
        """The next line of its standard error; empty when it has ended."""
        assert self._process.stderr is not None
        return self._process.stderr.readline().rstrip("\n")

    def lines_until(self, text: str) -> list[str]:
        """The lines up to the first that holds `text`."""
        lines = [self.line()]
        while text not in lines[-1]:
            assert lines[-1] or self._process.poll() is None, self.rest().err
            lines.append(self.line())
        return lines

    def kill(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def rest(self) -> Outcome:
        """Wait for its end; what it has printed since."""
        out, err = self._process.communicate(timeout=2 * _ENDS_WITHIN_S)
        return Outcome(self._process.returncode, out, err)

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send it the signal, upon which it ends as it should, without a complaint.

        Where something keeps it from ending, it complains when it has waited long enough.
        """
        self.kill(number)
        outcome = self.rest()
        assert (outcome.status, outcome.err) == (0, "")

    def close(self) -> None:
        """Have it gone, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


Start = Callable[..., Process]
"""The fixture `start`."""


def serve(start: Start, *flags: str, listen: str = "127.0.0.1:0") -> Process:
    """A server that is ready."""
    process = start("serve", "--listen", listen, *flags)
    assert process.line().startswith("certwright is ready at https://127.0.0.1:"), process.rest().err
    return process


def issue_quickstart(start: Start) -> None:
    """Apply the first example, and wait until its Certificates are Ready."""
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT).rest()
    assert done.status == 0, done.err


@contextmanager
def running_server(folder: Path) -> Iterator[Path]:
    """A server with controllers in that folder, which ends in good order; the value is its kubeconfig."""
    process = Process("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", cwd=folder)
    try:
        assert process.line().startswith("certwright is ready at https://127.0.0.1:"), process.rest().err
        yield folder / "data" / "kubeconfig"
        process.kill(signal.SIGTERM)
        ended = process.rest()
        assert (ended.status, ended.err) == (0, "")
    finally:
        process.close()
