"""Two ways to call the program from tests: in this process, and as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

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
    """The program as a process of its own."""

    def __init__(self, *words: str, cwd: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "certwright", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of its standard output; empty when it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def lines_until(self, text: str) -> list[str]:
        """The lines up to the first that holds `text`."""
        lines = [self.line()]
        while text not in lines[-1]:
            assert lines[-1] or self._process.poll() is None, self.rest().err
            lines.append(self.line())
        return lines

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def rest(self, *, timeout_s: float = 60) -> Outcome:
        """Wait for its end; what it has printed since."""
        out, err = self._process.communicate(timeout=timeout_s)
        return Outcome(self._process.returncode, out, err)

    def close(self) -> None:
        """Have it gone, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
