"""certwright as a program of its own, for tests that reach it as strangers do: by its kubeconfig."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.calls import AT_WORK, Process


@dataclass(frozen=True, slots=True)
class Daemon:
    """A server that is running, with its controllers."""

    kubeconfig: Path

    @property
    def url(self) -> str:
        lines = (line.strip() for line in self.kubeconfig.read_text().splitlines())
        return next(line.removeprefix("server: ") for line in lines if line.startswith("server: "))

    def _own(self) -> dict[str, str]:
        """Where the server is, and where a program may keep what it knows of it: of another one, which had
        this port before, it would know the wrong things."""
        folder = str(self.kubeconfig.parent.parent)
        return {"KUBECONFIG": str(self.kubeconfig), "HOME": folder, "TMPDIR": folder}

    def run(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program that finds the server by `KUBECONFIG`."""
        return subprocess.run(
            words,
            input=stdin,
            env={**os.environ, **self._own(), **environment},
            cwd=self.kubeconfig.parent,
            capture_output=True,
            text=True,
            timeout=280,
        )


@contextmanager
def controllers_beside(folder: Path) -> Iterator[Daemon]:
    """A server without controllers, and the controllers as a program of their own that reaches it by TLS."""
    with running_daemon(folder, "--controllers", "") as daemon:
        process = Process("controllers", "--kubeconfig", str(daemon.kubeconfig), cwd=folder)
        try:
            process.lines_until(AT_WORK)
            yield daemon
        finally:
            process.close()


@contextmanager
def running_daemon(folder: Path, *flags: str) -> Iterator[Daemon]:
    """Start one in `folder`, with further flags of `serve`."""
    process = Process("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", *flags, cwd=folder)
    try:
        assert process.line().startswith("certwright is ready at https://127.0.0.1:"), process.rest().err
        yield Daemon(folder / "data" / "kubeconfig")
    finally:
        process.close()
