"""A stand-in for systemd in a machine of the tests, from systemctl(1), systemd.exec(5) and sd_notify(3).

This file is the machine's /usr/local/bin/systemctl: with the word `serve` the manager, else its client.
Units of Debian's servers are a table; others are read from /etc/systemd/system, with `ExecStart`, `User`,
`AmbientCapabilities`, `SupplementaryGroups`, `Environment`, `EnvironmentFile`, `StateDirectory` and
`Type=notify`. A user other than root may reload what a file in /etc/polkit-1/rules.d names together with
that user.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

SOCKET = Path("/run/systemctl.sock")
_UNITS = Path("/etc/systemd/system")
_STATE = Path("/run/units")
_WAIT_S = 60.0
_CLUSTER = (
    "pg_ctlcluster --skip-systemctl-redirect $(ls -d /etc/postgresql/*/main | cut -d/ -f4 | tail -1) main"
)
_CADDY = "--config /etc/caddy/Caddyfile --adapter caddyfile"
_AS_CADDY = (
    "setpriv --reuid caddy --regid caddy --clear-groups --inh-caps +net_bind_service "
    "--ambient-caps +net_bind_service env HOME=/var/lib/caddy"
)
_SERVERS = {
    "nginx": ("nginx", "nginx -s reload", "nginx -s stop"),
    "haproxy": (
        "haproxy -W -D -p /run/haproxy.pid -f /etc/haproxy/haproxy.cfg",
        "kill -USR2 $(cat /run/haproxy.pid)",
        "kill $(cat /run/haproxy.pid)",
    ),
    "apache2": ("apachectl start", "apachectl graceful", "apachectl stop"),
    "caddy": (f"{_AS_CADDY} caddy start {_CADDY}", f"caddy reload {_CADDY} --force", "caddy stop"),
    "postgresql": (f"{_CLUSTER} start", f"{_CLUSTER} reload", f"{_CLUSTER} stop"),
    "traefik": (
        "setsid traefik --configFile=/etc/traefik/traefik.yaml > /var/log/traefik.log 2>&1 &",
        "true",
        "pkill traefik",
    ),
    "postfix": ("postfix start", "postfix reload", "postfix stop"),
    "dovecot": ("dovecot", "dovecot reload", "dovecot stop"),
}
"""The commands that start, reload and stop a server of Debian."""
_LOCKS: dict[str, threading.Lock] = defaultdict(threading.Lock)


class Refused(Exception):
    """The message and status that `systemctl` ends with."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def files_of(unit: str) -> list[Path]:
    """The files of a unit: its own, and the drop-ins. Raises `Refused`."""
    template = re.sub(r"@.*", "@", unit)
    path = next((path for name in (unit, template) if (path := _UNITS / f"{name}.service").exists()), None)
    if path is None:
        raise Refused(f"Unit {unit}.service not found.", 5)
    return [path, *sorted((_UNITS / f"{path.name}.d").glob("*.conf"), key=lambda file: file.name)]


def settings_of(unit: str) -> dict[str, list[str]]:
    """The settings of a unit and its drop-ins; an empty value resets a list. Raises `Refused`."""
    settings: dict[str, list[str]] = defaultdict(list)
    for file in files_of(unit):
        for line in re.sub(r"\\\n\s*", " ", file.read_text()).splitlines():
            name, equals, value = line.partition("=")
            if not equals or line.startswith(("#", ";")):
                continue
            value = value.replace("%i", unit.partition("@")[2])
            if value:
                settings[name].append(value)
            else:
                settings[name] = []
    return settings


def pid_of(unit: str) -> int | None:
    """The process of a unit that this module has started, if it lives."""
    try:
        pid = int((_STATE / unit).read_text())
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return pid


def start(unit: str) -> None:
    """Start a unit, and return when it is ready. Raises `Refused`."""
    if unit in _SERVERS:
        if not (_STATE / unit).exists():
            shell(_SERVERS[unit][0])
            (_STATE / unit).touch()
        return
    if pid_of(unit) is not None:
        return
    settings = settings_of(unit)
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for line in settings["Environment"]:
        environment |= dict(word.split("=", 1) for word in shlex.split(line))
    for file in settings["EnvironmentFile"]:
        environment |= dict(word.split("=", 1) for word in shlex.split(Path(file).read_text(), comments=True))
    user = settings["User"][-1] if settings["User"] else "root"
    if user != "root":
        environment |= {"HOME": pwd.getpwnam(user).pw_dir, "USER": user}
    for name in settings["StateDirectory"]:
        folder = Path("/var/lib") / name
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.chown(folder, user)
        environment["STATE_DIRECTORY"] = str(folder)
    command = []
    for word in shlex.split(settings["ExecStart"][-1]):
        if re.fullmatch(r"\$\w+", word):
            command += environment[word[1:]].split()
        else:
            command.append(re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word))
    log = Path("/var/log") / f"{unit}.log"
    notified = _STATE / f"{unit}.notify"
    notified.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, log.open("ab") as out:
        ready.bind(str(notified))
        notified.chmod(0o777)
        ready.settimeout(0.1)
        notifies = settings["Type"][-1:] == ["notify"]
        if notifies:
            environment["NOTIFY_SOCKET"] = str(notified)
        process = subprocess.Popen(
            [*as_user(user, settings), *command], env=environment, cwd="/", stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        (_STATE / unit).write_text(str(process.pid))
        deadline = time.monotonic() + _WAIT_S
        while notifies:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in ready.recv(4096):
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                (_STATE / unit).unlink()
                raise Refused(f"Job for {unit}.service failed:\n{log.read_text()[-2000:]}")
    threading.Thread(target=process.wait, daemon=True).start()


def as_user(user: str, settings: dict[str, list[str]]) -> list[str]:
    """The command that runs another as the user of a unit, with its groups and capabilities."""
    if user == "root":
        return []
    groups = [word for line in settings["SupplementaryGroups"] for word in line.split()]
    capabilities = "".join(
        f",+{word.removeprefix('CAP_').lower()}"
        for line in settings["AmbientCapabilities"]
        for word in line.split()
    )
    words = ["setpriv", "--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid), "--no-new-privs"]
    words += ["--groups", ",".join(groups)] if groups else ["--clear-groups"]
    sets = ("inh-caps", "ambient-caps", "bounding-set")
    return [*words, *(f"--{name}=-all{capabilities}" for name in sets)]


def stop(unit: str) -> None:
    """Stop a unit, and return when its process is gone."""
    pid = pid_of(unit)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while pid_of(unit) is not None:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.02)
        (_STATE / unit).unlink(missing_ok=True)


def reload(unit: str) -> None:
    """Reload a unit that runs. Raises `Refused`."""
    if unit in _SERVERS:
        if not (_STATE / unit).exists():
            raise Refused(f"{unit}.service is not active, cannot reload.")
        shell(_SERVERS[unit][1])
    elif (pid := pid_of(unit)) is None:
        raise Refused(f"{unit}.service is not active, cannot reload.")
    else:
        os.kill(pid, signal.SIGHUP)


def shell(command: str) -> None:
    """Run a command of the table. Raises `Refused`."""
    # What it prints goes to a file, because a server that goes to the background keeps it open.
    log = Path("/var/log/systemctl.log")
    with log.open("wb") as out:
        done = subprocess.run(
            ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, cwd="/"
        )
    if done.returncode:
        raise Refused(f"{command}: {log.read_text()}")


def is_allowed(uid: int, verb: str, unit: str) -> bool:
    """Whether a user may do that: root, and others by a file of polkit that names user, verb and unit."""
    if uid == 0:
        return True
    user = pwd.getpwuid(uid).pw_name
    rules = [path.read_text() for path in Path("/etc/polkit-1/rules.d").glob("*.rules")]
    needed = (f'"{user}"', f'"{verb}"', f'"{unit}.service"')
    return any(all(word in rule for word in needed) for rule in rules)


def run(words: list[str], uid: int) -> str:
    """One call of `systemctl`; returns what it prints. Raises `Refused`."""
    options = {word for word in words if word.startswith("-")}
    verb, *names = [word for word in words if not word.startswith("-")]
    units = [name.removesuffix(".service") for name in names]
    for unit in units:
        if verb not in ("cat", "is-active", "is-enabled", "status", "show") and not is_allowed(
            uid, verb, unit
        ):
            raise Refused(f"Failed to {verb} {unit}.service: Interactive authentication required.")
    printed = ""
    for unit in units:
        with _LOCKS[unit]:
            printed += call(verb, unit, options)
    return printed


def call(verb: str, unit: str, options: set[str]) -> str:
    """One verb for one unit. Raises `Refused`."""
    runs = (_STATE / unit).exists() if unit in _SERVERS else pid_of(unit) is not None
    match verb:
        case "start":
            start(unit)
        case "enable" | "disable":
            if unit not in _SERVERS:
                settings_of(unit)
            if "--now" in options:
                (start if verb == "enable" else stop)(unit)
        case "stop":
            stop(unit)
        case "restart" | "try-restart" if unit in _SERVERS:
            shell(f"{_SERVERS[unit][2]} || true")
            time.sleep(0.5)
            (_STATE / unit).unlink(missing_ok=True)
            start(unit)
        case "restart" | "try-restart":
            stop(unit)
            start(unit)
        case "reload":
            reload(unit)
        case "reload-or-restart" | "try-reload-or-restart":
            (reload if runs else start)(unit)
        case "is-active" | "is-enabled":
            if not runs and verb == "is-active":
                raise Refused("" if "--quiet" in options or "-q" in options else "inactive\n", 3)
            return "" if "--quiet" in options or "-q" in options else "active\n"
        case "cat":
            return "".join(file.read_text() for file in files_of(unit))
        case "status" | "show":
            return f"{unit}.service: {'active' if runs else 'inactive'}\n"
        case _:
            raise Refused(f"Unknown command verb {verb}.")
    return ""


def answer(connection: socket.socket) -> None:
    """Answer one call."""
    with connection, connection.makefile() as lines:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        words = json.loads(lines.readline())
        if words[:1] in (["daemon-reload"], ["daemon-reexec"]):
            result = (0, "")
        elif words[:1] == ["is-system-running"]:
            result = (0, "running\n")
        else:
            try:
                result = (0, run(words, uid))
            except Refused as error:
                result = (error.status, f"{error}\n" if str(error) else "")
        connection.sendall(json.dumps(result).encode())


def serve() -> None:
    """Answer calls until the machine ends."""
    Path("/run/systemd/system").mkdir(parents=True, exist_ok=True)
    _STATE.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(SOCKET))
        SOCKET.chmod(0o777)
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def main() -> None:
    """`serve`, or the words for the manager."""
    if sys.argv[1:] == ["serve"]:
        serve()
    with socket.socket(socket.AF_UNIX) as manager:
        manager.connect(str(SOCKET))
        manager.sendall(json.dumps(sys.argv[1:]).encode() + b"\n")
        status, text = json.loads(manager.makefile().read())
    (sys.stderr if status else sys.stdout).write(text)
    sys.exit(status)


if __name__ == "__main__":
    main()
