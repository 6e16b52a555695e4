"""systemd as far as `certwright setup` uses it, for a root where it does not run: `systemctl`, written from
systemctl(1), systemd.exec(5) and polkit(8).

`python fake_systemd.py serve` is the manager, which makes /run/systemd/system; `systemctl WORDS` asks it. The
units of servers are the table below; those of certwright are read, with their drop-ins. A user other than
root may only do what a rule of polkit names.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

SOCKET = Path("/run/fake-systemd")
UNITS = Path("/etc/systemd/system")
RULES = Path("/etc/polkit-1/rules.d")
SERVERS = {
    # unit: (start, reload)
    "nginx": ("nginx", "nginx -s reload"),
    "apache2": ("apache2 -k start", "apache2 -k graceful"),
    "haproxy": (
        "haproxy -W -D -p /run/haproxy.pid -f /etc/haproxy/haproxy.cfg",
        "kill -USR2 $(cat /run/haproxy.pid)",
    ),
    "postgresql": (
        "pg_ctlcluster --skip-systemctl-redirect 15 main start",
        "pg_ctlcluster --skip-systemctl-redirect 15 main reload",
    ),
    "postfix": ("postfix start", "postfix reload"),
    "dovecot": ("dovecot", "doveadm reload"),
    "caddy": (
        "caddy start --config /etc/caddy/Caddyfile --pidfile /run/caddy.pid",
        "caddy reload --config /etc/caddy/Caddyfile --force",
    ),
}

NAMES = {"postgresql": "postgres", "postfix": "master"}
"""Names of processes, where they are not the unit's."""


class Failed(Exception):
    """The text is what systemctl prints."""


def settings_of(unit: str) -> dict[str, str]:
    """The last value of each setting of the unit and its drop-ins; `ReadWritePaths` are joined."""
    files = [UNITS / f"{unit}.service", *sorted((UNITS / f"{unit}.service.d").glob("*.conf"))]
    found: dict[str, str] = {}
    for file in files:
        for key, value in re.findall(r"(?m)^(\w+)=(.*)$", file.read_text()):
            joins = key in ("ReadWritePaths", "SupplementaryGroups") and key in found
            found[key] = f"{found[key]} {value}" if joins else value
    return found


class Manager:
    """Starts and reloads units."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, unit: str) -> None:
        """Start a unit of Type=notify, and wait for its notification."""
        if unit in self.running and self.running[unit].poll() is None:
            return
        found = settings_of(unit)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = f"/run/notify-{time.monotonic_ns()}"
        notify.bind(place)
        Path(place).chmod(0o777)
        user = pwd.getpwnam(found["User"])
        state = Path("/var/lib") / found["StateDirectory"]
        state.mkdir(mode=0o700, exist_ok=True)
        os.chown(state, user.pw_uid, user.pw_gid)
        capabilities = "".join(
            f",+{name.removeprefix('CAP_').lower()}" for name in found["AmbientCapabilities"].split()
        )
        groups = [grp.getgrnam(name).gr_gid for name in found.get("SupplementaryGroups", "").split()]
        words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--no-new-privs"]
        words.append(f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups")
        words += [f"--{kind}=-all{capabilities}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        with Path(f"/var/log/{unit}.log").open("ab") as log:
            process = subprocess.Popen(
                [*words, *shlex.split(found["ExecStart"])],
                env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": place, "STATE_DIRECTORY": str(state)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self.running[unit] = process
        notify.settimeout(0.5)
        while process.poll() is None:
            try:
                if b"READY=1" in notify.recv(4096):
                    return
            except TimeoutError:
                continue
        raise Failed(f"Job for {unit}.service failed")

    def stop(self, unit: str) -> None:
        """Stop it."""
        process = self.running.pop(unit, None)
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)

    def obey(self, words: list[str], uid: int) -> str:
        """Carry out a command line. Raises `Failed`."""
        verb, *units = [word for word in words if not word.startswith("-")]
        units = [unit.removesuffix(".service") for unit in units]
        if uid != 0 and not all(self.may(verb, unit, uid) for unit in units):
            raise Failed(f"Failed to {verb} {units}: Interactive authentication required.")
        if verb == "cat":
            files = [UNITS / f"{units[0]}.service", *sorted((UNITS / f"{units[0]}.service.d").glob("*.conf"))]
            return "".join(file.read_text() for file in files)
        for unit in units:
            self.one(verb, unit, now="--now" in words)
        return "active\n" if verb == "is-active" else ""

    def may(self, verb: str, unit: str, uid: int) -> bool:
        """Whether a rule of polkit allows it."""
        name = pwd.getpwuid(uid).pw_name
        needed = [f'subject.user == "{name}"', f'("verb") == "{verb}"', f'("unit") == "{unit}.service"']
        return any(all(part in rule.read_text() for part in needed) for rule in RULES.glob("*.rules"))

    def one(self, verb: str, unit: str, *, now: bool) -> None:
        """Carry out a verb for a unit."""
        if unit in SERVERS and verb in ("reload", "reload-or-restart", "start", "restart"):
            running = (
                unit in self.running
                or subprocess.run(["pgrep", "-x", NAMES.get(unit, unit)], check=False).returncode == 0
            )
            self.running.pop(unit, None)
            command = SERVERS[unit][1 if running else 0]
            if verb == "reload" and not running:
                raise Failed(f"{unit}.service is not active, cannot reload.")
            done = subprocess.run(
                ["sh", "-c", command], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if done.returncode:
                raise Failed(f"Job for {unit}.service failed")
        elif verb in ("restart", "stop", "disable"):
            if verb != "disable" or now:
                self.stop(unit)
            if verb == "restart":
                self.start(unit)
        elif verb == "start":
            self.start(unit)
        elif verb == "reload":
            self.running[unit].send_signal(signal.SIGHUP)
        elif verb == "is-active" and (unit not in self.running or self.running[unit].poll() is not None):
            raise Failed("inactive")


def serve() -> None:
    """Run the manager."""
    Path("/run/systemd/system").mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(SOCKET))
    SOCKET.chmod(0o777)
    listener.listen()
    manager = Manager()
    while True:
        connection, _ = listener.accept()
        with connection:
            _, uid, _ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            )
            try:
                answer = "0" + manager.obey(connection.recv(65536).decode().split("\0"), uid)
            except (Failed, OSError, KeyError) as error:
                answer = f"1{error}\n"
            connection.sendall(answer.encode())


def main() -> None:
    """`serve`, or the words for systemctl."""
    words = sys.argv[1:]
    if words == ["serve"]:
        serve()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(SOCKET))
        connection.sendall("\0".join(words).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    print(answer[1:], end="")
    sys.exit(int(answer[0]))


if __name__ == "__main__":
    main()
