"""docs/howto/: each page followed to the letter on a stand-in for the reader's machine (`howto/host.py`)."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click
import pytest
import yaml

from certwright.cli.configuration import keys_of
from certwright.cli.main import program
from howto.blocks import FOLDER, File, blocks, ways
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
    "setup": ["nginx"],
    "apache": ["apache2"],
    "deliveries": ["nginx", "postfix", "dovecot"],
    "haproxy": ["haproxy"],
    "mail": ["postfix", "dovecot", "postconf"],
    "mtls": ["nginx", "curl"],
    "postgresql": ["pg_ctlcluster"],
    "trust": ["openssl", "certutil", "update-ca-certificates"],
    "from-own-ca": ["openssl"],
}
CERTBOT = Path(__file__).parents[1] / "cli" / "importing" / "certbot"
"""A folder that certbot has made."""
MADE_BY_MAKE = {"helm": "helm"}
SERVERS = {"caddy": "caddy", "traefik": "traefik"}
"""Programs of `make servers`."""
SERVED = {
    "nginx": ("web", "www.example.com"),
    "apache": ("web", "www.example.com"),
    "haproxy": ("site", "shop.example.com"),
    "caddy": ("app", "app.example.com"),
    "traefik": ("shop", "shop.example.com"),
    "wildcard": ("wildcard", "any.example.com"),
    "deliveries": ("shop", "shop.example.test"),
    "second-machine": ("web1", "web1.example.com"),
}
"""Pages whose server must present each renewal at port 443: the Certificate, and its name."""
CLUSTERS = {"helm", "try-switch"}
"""Pages for a cluster, which certwright's own API server stands for."""
WAYS = [(name, way) for name, page in PAGES.items() for way in ways(page)]
IS_FIRST = "certwright setup service\n"
"""Pages that begin with this are followed on a machine without a service."""


_WITHIN_S = 60.0


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_following_the_page_works(name: str, way: str, host: Host) -> None:
    for tool in NEEDS.get(name, ()):
        require(tool)
    if name in MADE_BY_MAKE:
        tool_of_ours(MADE_BY_MAKE[name], made_by=MADE_BY_MAKE[name])
    if name in SERVERS:
        environment_of("servers")
    if name == "from-certbot":
        host.run(f"cp -r {CERTBOT} /etc/letsencrypt")
        host.run("sed -i s#/var/www/#/var/www/html/#g /etc/letsencrypt/renewal/*")
    text = ways(PAGES[name])[way]
    if name != "service" and IS_FIRST not in text:
        host.follow(ways(PAGES["service"])["by hand"])
    if name in CLUSTERS:
        host.variables["KUBECONFIG"] = "/var/lib/certwright/kubeconfig"
    acme = host.cloudflare if "--dns01 cloudflare" in text else host.lets_encrypt
    with acme() if "letsencrypt" in text else nullcontext():
        host.follow(text)
        if name in SERVED:
            check_renewal(host, *SERVED[name])


@pytest.mark.parametrize("heading", ["with a CA of your own", "with Let's Encrypt"])
def test_three_commands_of_the_readme_give_https(heading: str, host: Host) -> None:
    for tool in ("nginx", "update-ca-certificates"):
        require(tool)
    readme = (FOLDER.parents[1] / "README.md").read_text()
    section = readme.partition(f"## Three commands to HTTPS {heading}\n")[2].partition("\n## ")[0]
    begin = time.monotonic()
    with host.lets_encrypt() if "letsencrypt" in section else nullcontext():
        host.follow(section.replace("sudo ", ""))
    assert time.monotonic() - begin < _WITHIN_S
    name = "www.example.com" if "letsencrypt" in section else "www.example.test"
    assert presented(name) == stored(host, "web")


def check_renewal(host: Host, certificate: str, name: str) -> None:
    """After a renewal the server presents the new certificate: it was reloaded, without the reader."""
    if (
        "Names:        " in (status := host.run(f"certwright status {certificate}"))
        and "example.test" in status
    ):
        name = name.replace(".com", ".test")  # by hand, from a private CA
    before = presented(name)
    host.run(f"certwright renew {certificate}")
    deadline = time.monotonic() + 60
    while (served := presented(name)) == before or served != stored(host, certificate):
        assert time.monotonic() < deadline, "the server still presents another certificate"
        time.sleep(0.1)


def presented(name: str) -> bytes:
    """The certificate that port 443 presents for a name, as DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", 443), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def stored(host: Host, certificate: str) -> bytes:
    """The certificate in the Secret, as DER."""
    encoded = host.run(f"certwright get secret {certificate}-tls -o jsonpath='{{.data.tls\\.crt}}'")
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(base64.b64decode(encoded).decode().partition(end)[0] + end)


def test_every_key_of_a_configuration_on_the_pages_exists() -> None:
    serve = program.get_command(click.Context(program), "serve")
    assert serve is not None
    known = {"apiVersion", "kind", *keys_of(serve)}
    files = [
        block
        for page in PAGES.values()
        for block in blocks(page.read_text())
        if isinstance(block, File)
        and block.name.startswith("/etc/certwright/")
        and block.name.endswith("yaml")
    ]
    assert len(files) > 5
    assert not [file.name for file in files if set(yaml.safe_load(file.text)) - known]


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
        for block in blocks(page.read_text()):
            if isinstance(block, File) and block.name.startswith("/etc/systemd/system/"):
                path = tmp_path / Path(block.name).relative_to("/etc/systemd/system")
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text.replace("/usr/bin/certwright", str(program_here)))
                names.append(path.name)
    assert len(names) > 3
    unit = tmp_path / "certwright.service"
    unit.write_text((UNITS / unit.name).read_text())
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
