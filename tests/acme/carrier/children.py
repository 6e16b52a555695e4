"""The processes that carry requests for this one, as the system knows them; and some that do it badly."""

from __future__ import annotations

import os
import sys
from pathlib import Path

READS_FOR_EVER = "all(iter(lambda: end.recv(65536), b''))"
_SAYS_HELLO = """
import socket
from certwright.acme.carrier.frames import Hello, encode
end = socket.socket(fileno=0)
end.sendall(encode(Hello()))
"""


def that_does(words: str) -> tuple[str, ...]:
    """The command of a child that says hello, and does that with its `end` of the socket."""
    return sys.executable, "-c", _SAYS_HELLO + words


_not_ours: set[int] = set()


def disregard_those_of_others() -> None:
    """Do not count what is there now: other tests have left it behind."""
    _not_ours.clear()
    _not_ours.update(carriers())


def carriers() -> list[int]:
    """Their ids; one that has ended and was not waited for is among them."""
    listed = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    return [pid for pid in listed if pid not in _not_ours and (is_carrier(pid) or state(pid) == "Z")]


def is_carrier(pid: int) -> bool:
    """Whether that process carries requests, and has not ended."""
    try:
        return b"certwright.acme.carrier" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def state(pid: int) -> str:
    """One letter, as `ps` has it (`Z`: it has ended, nobody has waited for it); empty: it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def environment(pid: int) -> set[str]:
    """The names in its environment."""
    return {one.partition("=")[0] for one in Path(f"/proc/{pid}/environ").read_text().split("\0")}


def files_of(pid: int) -> set[str]:
    """What its file descriptors stand for."""
    return {os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()}


def open_files() -> int:
    """How many file descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))
