"""What code of dns-lexicon can reach in its process: everything is tried in a process that is confined."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_TRIES = """
import json, os, socket, ssl, subprocess, sys
from certwright.acme.solvers.dns01.child.confine import Denied, confine, denial

def connect(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(0.01)
        one.connect((host, port))

def chained():
    try:
        connect("127.0.0.1", 80)
    except OSError as error:
        raise RuntimeError("request failed") from error

tries = {
    "read a secret": lambda: open("/etc/passwd").read(),
    "read by a link": lambda: open(sys.argv[1] + "/link").read(),
    "read by a descriptor": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "write": lambda: open(sys.argv[1] + "/file", "w"),
    "append beside Python": lambda: open(os.__file__, "a"),
    "remove": lambda: os.remove(sys.argv[1] + "/link"),
    "make a directory": lambda: os.mkdir(sys.argv[1] + "/directory"),
    "run": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "fork": lambda: os.fork(),
    "loopback": lambda: connect("127.0.0.1", 443),
    "loopback of IPv6": lambda: connect("::1", 443),
    "loopback, mapped": lambda: connect("::ffff:127.0.0.1", 443),
    "private": lambda: connect("10.0.0.1", 443),
    "metadata": lambda: connect("169.254.169.254", 80),
    "http": lambda: connect("192.0.43.8", 80),
    "local socket": lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
    "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.0.0.1", 123)),
    "a denial below another error": chained,
    "https": lambda: connect("8.8.8.8", 443),
    "a name server": lambda: connect("127.0.0.53", 53),
    "the operator's server": lambda: connect("127.0.0.9", 8081),
    "a module": lambda: __import__("wave"),
    "time zones": lambda: open("/usr/share/zoneinfo/UTC"),
    "TLS": lambda: ssl.create_default_context(),
}
confine(["http://127.0.0.9:8081/api", "main", "true", "::::"])
found = {}
for name, attempt in tries.items():
    try:
        attempt()
        found[name] = "done"
    except Exception as error:
        found[name] = "denied" if denial(error) else "tried"
print(json.dumps(found))
"""
_ALLOWED = ("https", "a name server", "the operator's server", "a module", "time zones", "TLS")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "link").symlink_to("/etc/passwd")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _TRIES, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_all_else_is_denied(outcomes: dict[str, str]) -> None:
    denied = {name for name, outcome in outcomes.items() if outcome == "denied"}
    assert set(outcomes) - denied == set(_ALLOWED)


def test_what_a_provider_needs_is_allowed(outcomes: dict[str, str]) -> None:
    assert {name: outcomes[name] for name in ("a module", "TLS")} == {"a module": "done", "TLS": "done"}
    if Path("/usr/share/zoneinfo/UTC").exists():
        assert outcomes["time zones"] == "done"
