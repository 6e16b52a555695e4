"""certwright as a service of this machine: the user, the directories, the configuration, the unit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGHUP
from typing import Any, Final

import click

from certwright.cli.access import SERVICE_DATA_DIR
from certwright.cli.configuration import API_VERSION, DEFAULT_FILE, KIND, Files
from certwright.cli.errors import Failed
from certwright.cli.setup.plan import (
    RECORDS,
    Directory,
    Host,
    Record,
    Step,
    TextFile,
    User,
    find_program,
    is_ours_at,
    run,
)

USER: Final = "certwright"
UNIT: Final = Path("/etc/systemd/system/certwright.service")
DROP_INS: Final = Path("/etc/systemd/system/certwright.service.d")
FRAGMENTS: Final = DEFAULT_FILE.parent / "conf.d"
HTTP01: Final = "127.0.0.1:8089"
_PACKAGED_UNITS: Final = (
    "/usr/lib/systemd/system/certwright.service",
    "/lib/systemd/system/certwright.service",
)
_PROGRAM: Final = Path("/usr/bin/certwright")
_POLKIT: Final = (Path("/usr/lib/polkit-1/polkitd"), Path("/usr/libexec/polkitd"))
_PRIVATE_PLACES: Final = ("/root/", "/home/", "/run/user/")
"""Directories that the unit hides (ProtectHome=)."""

_UNIT_TEXT: Final = """\
[Unit]
Description=certwright: X.509 certificates, declared and renewed
Documentation=man:systemd.exec(5)
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={program} serve --config {config}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2s
# It ends within two seconds; what was acknowledged is safe.
TimeoutStopSec=10s
# Its threads may still be at a key for nobody: a second signal would not help them.
KillMode=mixed

User={user}
StateDirectory=certwright
StateDirectoryMode=0700
UMask=0077

# For http01Listen :80 and tlsalpn01Listen :443.
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# Renewed files keep their owner and group. Other filtered calls fail; they do not end the process.
SystemCallFilter=@chown
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def configuration(host: Host, context: click.Context) -> dict[str, Any]:
    """The values of the configuration by parameter of `serve`. Raises `Failed` for a file with a problem,
    except in an image, whose paths are others, and in setup's own files, which a step mends, e.g. where a
    directory is missing."""
    files = _files(host, context)
    problems = [] if files is None else [each for each in files.problems if not is_ours_at(each.path)]
    problems = problems if host.is_live else []
    if problems:
        raise Failed(f"{'; '.join(map(str, problems))}. Nothing was changed")
    return {} if files is None else files.defaults


def _files(host: Host, context: click.Context) -> Files | None:
    path = host.at(DEFAULT_FILE)
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    serve = root.command.get_command(root, "serve")
    assert serve is not None
    return Files(path, click.Context(serve, info_name="serve", parent=root)) if path.exists() else None


def steps(host: Host, context: click.Context, *, program: Path | None, http01: str) -> Sequence[Step]:
    """The steps of `setup service`. Raises `Failed`."""
    present = configuration(host, context)
    wanted = {"dataDir": ("data_dir", str(SERVICE_DATA_DIR)), "http01Listen": ("http01_listen", http01)}
    settings = {key: value for key, (_, value) in wanted.items()}
    made: list[Step] = [
        User(USER, SERVICE_DATA_DIR),
        Directory(DEFAULT_FILE.parent),
        Directory(FRAGMENTS),
        Directory(SERVICE_DATA_DIR, 0o700, USER),
        TextFile(DEFAULT_FILE, _fragment(settings), is_seed=True),
    ]
    if host.at(DEFAULT_FILE).exists():
        missing = {key: value for key, (name, value) in wanted.items() if name not in present}
        own = FRAGMENTS / "00-service.yaml"
        if missing or host.at(own).exists():
            # What an earlier run has written there stays there.
            made.append(TextFile(own, _fragment(missing or settings), is_seed=not missing))
    if host.has_systemd and not any(_is_enough(host.at(path)) for path in _PACKAGED_UNITS):
        text = _UNIT_TEXT.format(program=_program(host, program), config=DEFAULT_FILE, user=USER)
        made.append(TextFile(UNIT, text))
    return made


def _fragment(settings: dict[str, str]) -> str:
    lines = [
        f"{key}: {value}\n" if ":" not in value else f'{key}: "{value}"\n' for key, value in settings.items()
    ]
    return f"apiVersion: {API_VERSION}\nkind: {KIND}\n{''.join(lines)}"


def _is_enough(path: Path) -> bool:
    """Whether a package has installed a unit that reads the configuration file."""
    try:
        text = path.read_text()
    except OSError:
        return False
    return f"--config {DEFAULT_FILE}" in text and f"User={USER}" in text


def _program(host: Host, program: Path | None) -> Path:
    """The program that the unit starts. Raises `Failed` if the service could not read it."""
    places = []
    if program is None:
        found = _PROGRAM if host.at(_PROGRAM).exists() or not host.is_live else find_program("certwright")
        program = Path(found or sys.argv[0])
        places = [sys.prefix, os.path.realpath(sys.executable)]
    program = program.absolute()
    if host.is_live:
        for place in (str(program), os.path.realpath(program), *places):
            if place.startswith(_PRIVATE_PLACES):
                raise Failed(
                    f"{program} needs {place}, which the service cannot read, as it is private to a user; "
                    "install certwright for all users (the Debian package, or `python3 -m venv "
                    "/opt/certwright` and its pip), and run that one's setup, or name it with --program"
                )
    return program


def restart(host: Host, *, is_changed: bool) -> bool:
    """Have the service run with what was written; whether it could be done. Raises `Failed`."""
    if not host.is_live or not host.has_systemd:
        return False
    if is_changed:
        run(("systemctl", "daemon-reload"))
        run(("systemctl", "enable", "certwright"))
    run(("systemctl", "restart" if is_changed else "start", "certwright"))
    return True


def by_hand(host: Host) -> str:
    """What the user runs where this program cannot start the service."""
    if not host.is_live:
        return f"in the image: {' '.join(User(USER, SERVICE_DATA_DIR).words)}; systemctl enable certwright"
    return f"setpriv --reuid={USER} --regid={USER} --init-groups certwright serve --config {DEFAULT_FILE}"


def has_polkit() -> bool:
    """Whether rules of polkit decide which user may reload a unit."""
    return any(path.exists() for path in _POLKIT)


def polkit_rule(unit: str) -> str:
    """The rule that lets the service reload that unit only."""
    return (
        "polkit.addRule(function (action, subject) {\n"
        f'  if (action.id == "org.freedesktop.systemd1.manage-units" && subject.user == "{USER}" &&\n'
        f'      action.lookup("verb") == "reload" && action.lookup("unit") == "{unit}.service")\n'
        "    return polkit.Result.YES;\n});\n"
    )


def others(host: Host) -> list[str]:
    """The servers that are set up."""
    return sorted(path.stem for path in host.at(RECORDS).glob("*.json") if path.stem != "service")


def record(host: Host) -> Record:
    """The record of `setup service`."""
    return Record.read(host, "service")


def process_of(data_dir: Path) -> int | None:
    """The process of certwright that has locked the data directory; None if there is none."""
    lock = data_dir / "lock"
    try:
        pid = int(lock.read_text().removeprefix("process "))
        process = Path(f"/proc/{pid}")
        # The service's user writes the lock, and may name only its own processes. An old lock may name a
        # later process.
        is_ours = process.stat().st_uid == lock.stat().st_uid
        return pid if is_ours and b"certwright" in (process / "cmdline").read_bytes() else None
    except (OSError, ValueError):
        return None


def signal(values: dict[str, Any]) -> None:
    """Have a running certwright read its files again, without systemd."""
    pid = process_of(Path(values.get("data_dir", SERVICE_DATA_DIR)))
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, SIGHUP)
