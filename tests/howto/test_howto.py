"""docs/howto/: each page followed to the letter on a stand-in for the reader's machine (`howto/host.py`)."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from certwright.cli.main import program
from howto.blocks import FOLDER, File, Script, blocks
from howto.host import Host
from support.programs import environment_of
from support.programs import tool as tool_of_ours
from support.real import require

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
PAGES = {page.stem: page for page in sorted(FOLDER.glob("*.md"))}
NEEDS = {
    "users": ["kubectl"],
    "helm": ["kubectl"],
    "nginx": ["nginx"],
    "deliveries": ["nginx"],
    "second-machine": ["nginx", "install"],
    "haproxy": ["haproxy"],
    "mtls": ["nginx", "curl"],
    "trust": ["openssl", "certutil", "update-ca-certificates"],
    "from-own-ca": ["openssl"],
}
CERTBOT = Path(__file__).parents[1] / "cli" / "importing" / "certbot"
"""A folder that certbot has made."""
SERVED = {
    "nginx": ("web", "www.example.com"),
    "haproxy": ("site", "shop.example.com"),
    "caddy": ("app", "app.example.com"),
    "deliveries": ("shop", "shop.example.test"),
}
"""Pages whose server must present each renewal: the Certificate, and its name."""
RUN = [name for name, page in PAGES.items() if any(isinstance(block, Script) for block in blocks(page))]


def presented(port: int, name: str) -> bytes:
    """The certificate that the server at 127.0.0.1 presents for a name, as DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def stored(host: Host, certificate: str) -> bytes:
    """The certificate in the exported file, as DER."""
    chain = (host.exported / "default" / certificate / "tls.crt").read_text()
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(chain.partition(end)[0] + end)


@pytest.mark.parametrize("name", RUN)
def test_following_the_page_works(name: str, host: Host) -> None:
    for tool in NEEDS.get(name, ()):
        require(tool)
    if name == "helm":
        tool_of_ours("helm", made_by="helm")
    if name == "caddy":
        host.install(environment_of("servers") / "bin" / "caddy")
    if name == "from-certbot":
        imported = shutil.copytree(CERTBOT, host.root / "etc/letsencrypt")
        for settings in (imported / "renewal").iterdir():
            settings.write_text(host.translated(settings.read_text()))
    host.follow(PAGES[name])
    if name in SERVED:
        check_renewal(host, *SERVED[name])
    if name == "second-machine":
        check_second_machine(host)


def check_renewal(host: Host, certificate: str, name: str) -> None:
    """After a renewal the server presents the new certificate: it was reloaded, without the reader."""
    before = stored(host, certificate)
    await_presented(host, name, lambda served: served == before)
    host.run(f"certwright renew {certificate}")
    await_presented(host, name, lambda served: served != before and served == stored(host, certificate))


def check_second_machine(host: Host) -> None:
    """The unit's command, with the settings of the page, brings each renewal to the server there."""
    unit = (UNITS / "certwright-export@.service").read_text()
    settings = PAGES["second-machine"].read_text().partition("# /etc/certwright/export/web1.conf\n")[2]
    words = re.findall(r"^ExecStart=/usr/bin/env (.*)$", unit, re.M)[0].replace("%i", "web1")
    script = host.translated(f"{settings.partition('```')[0]}\nexec {words}")
    # systemd splits $OPTIONS at spaces, and ${ON_CHANGE} never.
    script = re.sub(r"\$\{(\w+)\}", r'"${\1}"', script)
    log = host.root / "follower.log"
    with log.open("w") as output:
        follower = subprocess.Popen(
            ["bash", "-euc", script], env=host.environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        tls = host.root / "etc/nginx/web1/tls.crt"
        before = tls.read_bytes()
        host.run("certwright renew web1")
        deadline = time.monotonic() + 60
        while tls.read_bytes() == before:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        pem = tls.read_text().partition("-----END")[0] + "-----END CERTIFICATE-----"
        written = ssl.PEM_cert_to_DER_cert(pem)
        await_presented(host, "web1.example.com", lambda served: served == written)
    finally:
        follower.terminate()
        assert follower.wait(60) == 0, log.read_text()


def await_presented(host: Host, name: str, is_wanted: Callable[[bytes], bool]) -> bytes:
    """The certificate that the server presents when it is as wanted: a reload takes a moment."""
    deadline = time.monotonic() + 60
    while not is_wanted(served := presented(host.ports.https, name)):
        assert time.monotonic() < deadline, "the server still presents another certificate"
        time.sleep(0.05)
    return served


_ROOT_DIRECTORY = re.compile(r"(--delivery-root \w+=)/\S+")


def commands_of_units() -> list[tuple[str, str]]:
    """The `certwright` command lines of units and their drop-ins on the pages."""
    return [
        (page.name, line.removeprefix("ExecStart="))
        for page in PAGES.values()
        for line in page.read_text().splitlines()
        if line.startswith("ExecStart=/")
    ]


@pytest.mark.parametrize(("page", "line"), commands_of_units())
def test_the_command_line_of_a_unit_is_understood(page: str, line: str, tmp_path: Path) -> None:
    # The directories of roots must exist.
    executable, name, *words = shlex.split(_ROOT_DIRECTORY.sub(rf"\1{tmp_path}", line))
    assert executable == "/opt/certwright/bin/certwright"
    command = program.get_command(click.Context(program), name)
    assert command is not None
    command.make_context(name, words)


_COMMAND = re.compile(r"(?:^|`)certwright ([a-z]+)((?:\\\n|[^`\n|])*)", re.M)
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.S | re.M)
_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_flag_of_certwright_on_the_page_exists(name: str) -> None:
    context = click.Context(program)
    for called, words in _COMMAND.findall("\n".join(_CODE.findall(PAGES[name].read_text()))):
        command = program.get_command(context, called)
        assert command is not None, called
        unknown = set(_FLAG.findall(words.partition("#")[0])) - flags_of(command)
        assert not unknown, f"certwright {called}{words}"


def flags_of(command: click.Command) -> set[str]:
    """Of a command and those below it."""
    own = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(flags_of, inner))


def test_systemd_understands_the_unit_with_the_drop_ins_of_the_pages(tmp_path: Path) -> None:
    require("systemd-analyze")
    program_here = Path(sys.executable).parent / "certwright"
    names = []
    for page in PAGES.values():
        for block in blocks(page):
            if isinstance(block, File) and block.name.startswith("/etc/systemd/system/"):
                path = tmp_path / Path(block.name).relative_to("/etc/systemd/system")
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text.replace("/opt/certwright/bin/certwright", str(program_here)))
                names.append(path.name)
    assert len(names) > 3
    unit = tmp_path / "certwright.service"
    unit.write_text((UNITS / unit.name).read_text())
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
