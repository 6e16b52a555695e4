"""`certwright doctor`: what is wrong with certwright on this machine, with the fix of each problem."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from certwright.cli.access import SERVICE_DATA_DIR, choose, session
from certwright.cli.configuration import DEFAULT_FILE, Files
from certwright.cli.errors import AlreadyReported, Failed
from certwright.cli.flags import is_free
from certwright.cli.format import echo, print_content
from certwright.cli.options import ServerOptions, json_option, server_options
from certwright.cli.setup import plan, service
from certwright.cli.setup.plan import Host
from certwright.diagnosis import certificates as diagnosis
from certwright.diagnosis import related
from certwright.diagnosis.words import sentence
from certwright.kube.api.errors import ApiError
from certwright.kube.client.rest import Client
from certwright.resources import plain_kinds

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
_LEAST_FREE: Final = 100 << 20
"""Bytes. The store fails to write soon; what is left serves its journal and logs."""
_MOST_NAMES: Final = 200
_DNS_WITHIN_S: Final = 10.0
# Earlier than this the clock has lost its time: the first commit of certwright is later.
_EARLIEST: Final = 1_750_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One result: what was checked, `state`, a sentence, and the fix, empty where nothing is to be done."""

    check: str
    state: str
    message: str
    fix: str = ""


@click.command(short_help="Check the service on this machine, and name the fix of each problem.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    help="The configuration of the service.",
)
@json_option()
@server_options
@click.pass_context
def command(context: click.Context, *, config: Path, output: str | None, server: ServerOptions) -> None:
    """Check certwright on this machine: configuration, unit, files of setup, directories, hooks, ports,
    disk, clock, issuers, certificates, deliveries, and the DNS of names that an ACME server validates.
    Nothing is changed.

    Where no service is set up, the server that other commands use is checked, e.g. that of --kubeconfig.

    Exit status 0: no problem. 1: there is one.

    \b
    Examples:
      sudo certwright doctor
      sudo certwright doctor -o json
    """
    values, findings = _configuration(context, config)
    data_dir = Path(values.get("data_dir") or SERVICE_DATA_DIR)
    if config == DEFAULT_FILE and not _is_set_up(data_dir):
        findings = [*_without_service(server), *_clock()]
    elif data_dir.exists() and not os.access(data_dir, os.R_OK | os.X_OK):
        message = f"{data_dir} is private to its owner, so that this user sees nothing of the service"
        findings = [Finding("service", PROBLEM, message, "run `sudo certwright doctor`")]
    else:
        findings += _of_service(config, data_dir, values)
        kubeconfig = data_dir / "kubeconfig"
        if server.kubeconfig is None and os.access(kubeconfig, os.R_OK):
            server = ServerOptions(kubeconfig=kubeconfig, context=server.context, namespace=None)
        if _has_kubeconfig(server):
            findings += asyncio.run(_server(server))
        else:
            message = "issuers and certificates are not checked, because this user has no kubeconfig"
            findings.append(
                Finding("server", WARNING, message, "the service writes one at its start, for root")
            )
    if output is not None:
        print_content([asdict(finding) for finding in findings], output)
    else:
        for finding in findings:
            fix = f"; {finding.fix}" if finding.fix else ""
            echo(f"{finding.state:<9}{finding.check}: {finding.message}{fix}".replace("\n", " "))
    if any(finding.state == PROBLEM for finding in findings):
        raise AlreadyReported


def _is_set_up(data_dir: Path) -> bool:
    """Whether anything of a service is on this machine: its configuration, data or unit."""
    if DEFAULT_FILE.parent.exists() or data_dir.exists():
        return True
    return Host().has_systemd and _unit_text() is not None


def _without_service(options: ServerOptions) -> list[Finding]:
    """What is known where no service is set up: the server that the user's commands use, if they use one."""
    message = "no service is set up on this machine"
    if not _has_kubeconfig(options):
        fix = (
            "`sudo certwright setup service` does it; for a server elsewhere, name its kubeconfig with "
            "--kubeconfig"
        )
        return [Finding("service", PROBLEM, message, fix)]
    return [
        Finding("service", OK, f"{message}; the server of your kubeconfig is checked"),
        *asyncio.run(_server(options)),
    ]


def _has_kubeconfig(options: ServerOptions) -> bool:
    try:
        choose(options.kubeconfig, os.environ, Path.cwd())
    except Failed:
        return False
    return True


def _of_service(config: Path, data_dir: Path, values: Mapping[str, Any]) -> Iterator[Finding]:
    """What is known of the service without its server."""
    is_running = service.process_of(data_dir) is not None
    yield from _unit(config, is_running=is_running)
    yield from _files()
    yield from _directories(data_dir, values)
    yield from _hooks(values)
    yield from _ports(values, is_running=is_running)
    yield from _disk(data_dir)
    yield from _clock()


def _configuration(context: click.Context, path: Path) -> tuple[Mapping[str, Any], list[Finding]]:
    check = "configuration"
    if not path.exists():
        fix = "`certwright setup service` writes it" if path == DEFAULT_FILE else "correct --config"
        return {}, [Finding(check, PROBLEM, f"{path} does not exist", fix)]
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    serve = root.command.get_command(root, "serve")
    assert serve is not None
    files = Files(path, click.Context(serve, info_name="serve", parent=root))
    problems = [Finding(check, PROBLEM, str(problem)) for problem in files.problems]
    return files.defaults, problems or [Finding(check, OK, f"{path} and conf.d are valid")]


def _unit_text() -> str | None:
    """The unit with its drop-ins; None if there is none."""
    try:
        return plan.run(("systemctl", "cat", "certwright.service"))
    except Failed:
        return None


def _unit(config: Path, *, is_running: bool) -> Iterator[Finding]:
    check = "service"
    if not Host().has_systemd:
        message = "systemd does not run here; "
        if is_running:
            yield Finding(check, OK, f"{message}certwright runs")
        else:
            fix = f"run `{service.by_hand(Host())}`"
            yield Finding(check, PROBLEM, f"{message}certwright does not run", fix)
        return
    if (shown := _unit_text()) is None:
        yield Finding(check, PROBLEM, "there is no unit certwright.service", "run `certwright setup service`")
        return
    starts = [line for line in shown.splitlines() if line.startswith("ExecStart=/")]
    if starts and f"--config {config}" not in starts[-1]:
        yield Finding(
            check,
            WARNING,
            f"the unit runs `{starts[-1].removeprefix('ExecStart=')}`, which does not read {config}",
            "move its flags to a file in conf.d, and remove the drop-in with that ExecStart=",
        )
    for verb, ending, fix in (
        ("is-active", "does not run", "`journalctl -u certwright` shows why; `systemctl start certwright`"),
        ("is-enabled", "does not start at boot", "`systemctl enable certwright`"),
    ):
        try:
            plan.run(("systemctl", verb, "certwright.service"))
        except Failed:
            yield Finding(check, PROBLEM if verb == "is-active" else WARNING, f"certwright {ending}", fix)
            return
    yield Finding(check, OK, "the unit runs, and starts at boot")


def _files() -> Iterator[Finding]:
    """The files that setup has written."""
    host, count = Host(), 0
    try:
        for name in ("service", *service.others(host)):
            record = plan.Record.read(host, name)
            again = f"certwright setup {name}" + ("" if name == "service" else " NAME")
            for made in record.content.made:
                path = Path(made.what)
                if made.kind == "file" and path != DEFAULT_FILE:
                    count += 1
                    if not path.exists():
                        yield Finding("setup", PROBLEM, f"{path} is missing", f"run `{again}`")
                    elif not plan.is_ours_at(path):
                        yield Finding("setup", WARNING, f"{path} was changed, so setup keeps it")
    except Failed as error:
        yield Finding("setup", PROBLEM, error.format_message())
    if count:
        yield Finding("setup", OK, f"{count} files are known")


def _directories(data_dir: Path, values: Mapping[str, Any]) -> Iterator[Finding]:
    check = "directories"
    try:
        status = data_dir.stat()
    except OSError as error:
        fix = "certwright makes it at its first start"
        yield Finding(check, PROBLEM, f"{data_dir}: {error.strerror}", fix)
        return
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        fix = f"chmod 0700 {data_dir}"
        yield Finding(check, PROBLEM, f"{data_dir} has keys, and other users may enter it", fix)
    owner = plan.name_of(status.st_uid)
    written = _writable() if Host().has_systemd else None
    count = 0
    for name, directory in _roots(values).items():
        count += 1
        try:
            is_root_of = directory.stat().st_uid
        except OSError as error:
            fix = f"install -d -o {owner} {directory}"
            yield Finding(check, PROBLEM, f"delivery root {name}: {directory}: {error.strerror}", fix)
            continue
        if is_root_of != status.st_uid and owner != "root":
            other = plan.name_of(is_root_of)
            message = f"delivery root {name}: {directory} belongs to {other}, not to {owner}"
            yield Finding(check, PROBLEM, message, f"chown {owner} {directory}")
        if written is not None and not any(directory.is_relative_to(path) for path in written):
            fix = f"add ReadWritePaths={directory} in a drop-in, as `certwright setup` does"
            yield Finding(check, PROBLEM, f"delivery root {name}: the unit may not write {directory}", fix)
    yield Finding(check, OK, f"{data_dir} is private to {owner}; {count} delivery roots were looked at")


def _roots(values: Mapping[str, Any]) -> dict[str, Path]:
    pairs = [str(text).partition("=") for text in values.get("delivery_roots") or ()]
    return {name: Path(rest.split(",")[0]) for name, _, rest in pairs}


def _writable() -> list[Path] | None:
    """The directories that the unit may write besides its own; None if they cannot be known."""
    if (shown := _unit_text()) is None:
        return None
    texts = re.findall(r"(?m)^ReadWritePaths=(.*)$", shown)
    if "ProtectSystem=strict" not in shown:
        return None
    return [Path(word.lstrip("-+")) for text in texts for word in text.split()]


def _hooks(values: Mapping[str, Any]) -> Iterator[Finding]:
    check, count = "hooks", 0
    for text in values.get("hooks") or ():
        count += 1
        name, _, hook = str(text).partition("=")
        if hook.startswith("haproxy:"):
            path = hook.removeprefix("haproxy:")
            if not Path(path).is_socket():
                fix = f"add `stats socket {path} mode 660 level admin` to the global section of haproxy.cfg"
                yield Finding(check, PROBLEM, f"hook {name}: HAProxy has no socket {path}", fix)
            continue
        try:
            words = shlex.split(hook)
        except ValueError:
            words = []
        if words and re.fullmatch(r"[\w./+-]+", words[0]) and plan.find_program(words[0]) is None:
            yield Finding(check, PROBLEM, f"hook {name}: there is no program {words[0]}", "correct the hook")
        elif words[:2] == ["systemctl", "reload"] and Host().has_systemd:
            yield from _reload_right(check, name, words[2:])
    yield Finding(check, OK, f"{count} hooks were looked at")


def _reload_right(check: str, name: str, units: list[str]) -> Iterator[Finding]:
    if not service.has_polkit():
        fix = "apt-get install polkitd"
        yield Finding(check, PROBLEM, f"hook {name}: polkit is not installed, which lets a user reload", fix)
        return
    rules = "".join(
        path.read_text(errors="replace")
        for folder in ("/etc/polkit-1/rules.d", "/usr/share/polkit-1/rules.d")
        for path in Path(folder).glob("*.rules")
        if os.access(path, os.R_OK)
    )
    for unit in units:
        if f'"{unit.removesuffix(".service")}.service"' not in rules:
            yield Finding(
                check,
                PROBLEM,
                f"hook {name}: no rule of polkit lets {service.USER} reload {unit}",
                "`certwright setup` writes one; docs/delivery.md shows it",
            )


def _ports(values: Mapping[str, Any], *, is_running: bool) -> Iterator[Finding]:
    check = "ports"
    for key, option in (
        ("listen", "listen"),
        ("http01_listen", "http01Listen"),
        ("tlsalpn01_listen", "tlsalpn01Listen"),
    ):
        listen = values.get(key) or ("127.0.0.1:8443" if key == "listen" else None)
        if not isinstance(listen, str):
            continue
        host, _, port = listen.rpartition(":")
        host = host.strip("[]") or "0.0.0.0"  # noqa: S104 - what the key means
        free = port.isdigit() and is_free(host, int(port))
        if is_running and free:
            message = f"certwright runs, but does not listen on {listen} ({option})"
            yield Finding(check, PROBLEM, message, "`systemctl restart certwright`; the log shows why")
        elif not is_running and not free:
            fix = f"`ss -ltnp 'sport = :{port}'` shows which; choose another {option}"
            yield Finding(check, PROBLEM, f"another program listens on {listen} ({option})", fix)
        else:
            state = "is certwright's" if is_running else "is free"
            yield Finding(check, OK, f"{listen} ({option}) {state}")


def _disk(data_dir: Path) -> Iterator[Finding]:
    try:
        free = shutil.disk_usage(data_dir).free
        nodes = os.statvfs(data_dir)
    except OSError:
        return
    if free < _LEAST_FREE:
        yield Finding("disk", PROBLEM, f"{data_dir} has {free >> 20} MB left", "free some space")
    elif nodes.f_files and not nodes.f_favail:
        yield Finding("disk", PROBLEM, f"{data_dir} has no inodes left", "delete files")
    else:
        yield Finding("disk", OK, f"{data_dir} has {free >> 20:,} MB left")


def _clock() -> Iterator[Finding]:
    fix = "set it, and have it kept: `apt-get install systemd-timesyncd` or chrony"
    if time.time() < _EARLIEST:
        yield Finding("clock", PROBLEM, f"the clock says {time.strftime('%Y-%m-%d')}", fix)
        return
    try:
        kept = plan.run(("timedatectl", "show", "--property=NTPSynchronized", "--value")).strip()
    except Failed:
        kept = ""
    if kept == "no":
        yield Finding("clock", WARNING, "no time server keeps the clock right", fix)
    else:
        yield Finding("clock", OK, time.strftime("it is %Y-%m-%d %H:%M UTC", time.gmtime()))


async def _server(options: ServerOptions) -> list[Finding]:
    """What the server knows."""
    try:
        async with session(options) as here:
            try:
                return [*await _issuers(here.client), *await _certificates(here.client)]
            except ApiError as error:
                return [Finding("server", PROBLEM, str(error))]
    except Failed as error:
        return [Finding("server", PROBLEM, error.format_message())]


def _title(obj: diagnosis.Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


async def _issuers(client: Client) -> list[Finding]:
    findings, count = [], 0
    for kind in (related.ISSUERS, related.CLUSTER_ISSUERS):
        for issuer in (await client.list(kind)).items:
            count += 1
            if not diagnosis.is_true(issuer, "Ready"):
                message = str(diagnosis.condition(issuer, "Ready").get("message") or "not processed yet")
                fix = f"`certwright describe {kind.singular} {_title(issuer).rpartition('/')[2]}` shows it"
                text = f"{kind.kind} {_title(issuer)} is not ready: {sentence(message)}"
                findings.append(Finding("issuers", PROBLEM, text, fix))
    return findings or [Finding("issuers", OK, f"{count} are ready")]


async def _certificates(client: Client) -> list[Finding]:
    findings, names = [], set()
    certificates = (await client.list(related.CERTIFICATES)).items
    for certificate in certificates:
        if not diagnosis.is_true(certificate, "Ready"):
            meta = certificate["metadata"]
            fix = f"`certwright status {meta['name']} -n {meta['namespace']}` shows why"
            findings.append(Finding("certificates", PROBLEM, f"{_title(certificate)} is not ready", fix))
    findings = findings or [Finding("certificates", OK, f"{len(certificates)} are ready")]
    deliveries = (await client.list(plain_kinds.DELIVERIES)).items
    late = [
        Finding("deliveries", PROBLEM, f"{_title(delivery)}: {sentence(str(state.get('message', '')))}")
        for delivery in deliveries
        for state in (diagnosis.condition(delivery, kind) for kind in ("Delivered", "Deployed"))
        if state.get("status") == "False"
    ]
    findings += late or [Finding("deliveries", OK, f"{len(deliveries)} are delivered and served")]
    orders = (await client.list(related.CHALLENGES)).items
    for challenge in orders:
        names.add(str(challenge["spec"].get("dnsName", "")))
    for order in (await client.list(related.ORDERS)).items:
        names |= set(order["spec"].get("dnsNames") or ())
    return [*findings, *await _dns(sorted(name for name in names if name and "*" not in name))]


async def _dns(names: list[str]) -> list[Finding]:
    loop = asyncio.get_running_loop()

    async def resolve(name: str) -> Finding | None:
        try:
            async with asyncio.timeout(_DNS_WITHIN_S):
                await loop.getaddrinfo(name, 443, type=socket.SOCK_STREAM)
        except TimeoutError:
            return Finding("dns", WARNING, f"{name} is not answered", "check /etc/resolv.conf")
        except OSError as error:
            fix = "add an A or AAAA record that leads to this machine, unless DNS-01 validates it"
            return Finding("dns", WARNING, f"{name} has no address: {error.strerror}", fix)
        return None

    found = [each for each in await asyncio.gather(*map(resolve, names[:_MOST_NAMES])) if each is not None]
    count = min(len(names), _MOST_NAMES)
    return found or [Finding("dns", OK, f"{count} names of ACME orders have an address")]
