"""A machine of its own for a test: namespaces of mounts, network and processes over a copy-on-write root.

The programs of this machine exist, with /etc as the packages have written it, and ports 80 and 443 are
free. What is written is gone when the test ends.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import systemd
from support.real import missing, require

_MOUNTS = """
mount -t tmpfs none {at} && mkdir {at}/upper {at}/work {at}/root &&
mount -t overlay overlay -o lowerdir=/,upperdir={at}/upper,workdir={at}/work {at}/root &&
mount -t proc proc {at}/root/proc && mount --rbind /dev {at}/root/dev &&
mount -t tmpfs none {at}/root/run && ip link set lo up && echo ready && exec chroot {at}/root sleep 100000
"""
_BIN = Path(sys.executable).parent


class Machine:
    """The machine; commands run there as root."""

    def __init__(self, pid: int) -> None:
        self._enter = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--root", "--wd"]

    def run(self, script: str, *, status: int = 0, env: dict[str, str] | None = None) -> str:
        """Run a script of the shell; what it printed, errors too."""
        path = f"{_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*self._enter, "bash", "-c", script],
            env={"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == status, f"{script}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, *words: str) -> None:
        """Start a program that lasts until the machine ends."""
        self.run(f"{shlex.join(words)} >/var/log/{Path(words[0]).name}.log 2>&1 </dev/null &")

    def start_systemd(self) -> None:
        """Start the stand-in for systemd."""
        self.write(
            "/usr/local/bin/systemctl",
            f"#!{sys.executable} -IS\n{Path(systemd.__file__).read_text()}",
            mode=0o755,
        )
        self.run("mkdir -p /usr/lib/polkit-1 && touch /usr/lib/polkit-1/polkitd")
        self.start("/usr/local/bin/systemctl", "serve")
        self.run(f"while ! [ -S {systemd.SOCKET} ]; do sleep 0.05; done")

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file."""
        quoted = shlex.quote(path)
        self.run(f"mkdir -p $(dirname {quoted}); printf %s {shlex.quote(text)} > {quoted}")
        self.run(f"chmod {mode:o} {quoted}")


@contextmanager
def own_machine(folder: Path) -> Iterator[Machine]:
    """A machine, whose mounts are at that folder."""
    for tool in ("unshare", "nsenter", "setpriv"):
        require(tool)
    if os.geteuid() != 0:
        missing("a machine of its own needs root")
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    with subprocess.Popen(
        [*unshare, "sh", "-c", _MOUNTS.format(at=folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if said != "ready\n":
                missing(f"no machine of its own: {said}")
            machine = Machine(_child(process.pid))
            # Users of the machine run this Python, which may be in root's home.
            for path in Path(sys.executable).resolve().parents:
                machine.run(f"chmod o+x {path}")
            yield machine
        finally:
            process.kill()


def _child(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # After the `exec`, so that its root is the one of the machine.
        if children and os.readlink(f"/proc/{children[0]}/root") != "/":
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("the machine did not start")
