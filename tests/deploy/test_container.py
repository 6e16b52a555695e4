"""The image's commands and examples/compose, with real nginx and without a container runtime: paths and ports
of the containers become those of a scratch directory."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from certwright.cli.configuration import Files
from certwright.cli.main import program
from deploy.rights import DEPLOY, ROOT
from support.programs import free_port, running
from support.real import require
from support.waiting import until_so

COMPOSE = ROOT / "examples" / "compose"
TEXT = (DEPLOY / "Containerfile").read_text()
_NGINX = """
worker_processes 1; error_log stderr; pid {here}/nginx.pid;
events {{}}
http {{ access_log off; client_body_temp_path {here}; proxy_temp_path {here}; fastcgi_temp_path {here};
uwsgi_temp_path {here}; scgi_temp_path {here};
{server}
}}
"""


def _json_after(word: str) -> list[str]:
    (found,) = re.findall(rf"^(?:{word}) .*?(\[.*\])$", TEXT, re.M)
    words: list[str] = json.loads(found)
    return words


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[str]:
    """The image's own command; yields the URL of its health."""
    (settings,) = re.findall(r"printf '%s\\n' (.*) \\", TEXT)
    config = tmp_path / "certwright.yaml"
    config.write_text("".join(line + "\n" for line in re.findall(r"'([^']*)'", settings)))
    port = free_port()
    config.write_text(config.read_text().replace('":8443"', f'":{port}"'))
    words = [word.replace("/etc/certwright", str(tmp_path)) for word in _json_after("CMD")]
    command = ["env", "-C", str(tmp_path), sys.executable, "-m", "certwright", *words]
    with running(command, tmp_path / "log", port):
        (url,) = re.findall(r"^ENV CERTWRIGHT_HEALTH_URL=(.*)$", TEXT, re.M)
        assert ":8443/" in url
        yield url.replace("8443", str(port))


def _is_healthy(url: str) -> bool:
    words = _json_after("HEALTHCHECK")
    assert words.pop(0) == "python"
    done = subprocess.run(
        [sys.executable, *words], env={"CERTWRIGHT_HEALTH_URL": url}, capture_output=True, check=False
    )
    return done.returncode == 0


def test_the_health_check_fits_the_images_command(serving: str) -> None:
    until_so(lambda: _is_healthy(serving))
    assert not _is_healthy(f"https://127.0.0.1:{free_port()}/livez")


def test_the_build_context_has_what_is_copied_and_no_keys() -> None:
    rules = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in rules
    copied = {word for line in re.findall(r"^COPY (?!--)(.*) \S+$", TEXT, re.M) for word in line.split()}
    assert copied <= {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert re.search(r"^USER [1-9]\d*:", TEXT, re.M)


def test_nginx_of_the_compose_example_serves_each_renewed_certificate(tmp_path: Path) -> None:
    nginx = require("nginx")
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    tls, api, https = tmp_path / "tls", free_port(), free_port()
    mounts = {"/manifests": str(COMPOSE / "manifests"), "/tls": str(tls), ":8443": f"127.0.0.1:{api}"}
    words = [mounts.get(word, word) for word in services["certwright"]["command"]]
    server = (COMPOSE / "nginx.conf").read_text().replace("listen 443", f"listen 127.0.0.1:{https}")
    conf = tmp_path / "nginx.conf"
    conf.write_text(_NGINX.format(here=tmp_path, server=server.replace("/tls/", f"{tls}/")))
    for name in ("nginx.conf", "reload.sh", "manifests"):
        assert any(f"./{name}:" in mount for service in services.values() for mount in service["volumes"])
    reload = (
        (COMPOSE / "reload.sh")
        .read_text()
        .replace("=/tls/", f"={tls}/")
        .replace("sleep 5", "sleep 0.2 && kill -0 $$")
    )
    assert os.access(COMPOSE / "reload.sh", os.X_OK)
    started = f"nginx() {{ {nginx} -c {conf} \"$@\"; }}\n{reload}\nexec {nginx} -c {conf} -g 'daemon off;'"
    certwright = ["env", "-C", str(tmp_path), sys.executable, "-m", "certwright"]

    def served(ca: Path) -> bytes:
        context = ssl.create_default_context(cafile=str(ca))
        with urllib.request.urlopen(f"https://localhost:{https}/", context=context) as answer:
            assert b"certwright" in answer.read()
        pem = ssl.get_server_certificate(("127.0.0.1", https))
        return pem.encode().strip()

    with ExitStack() as stack:
        stack.enter_context(running([*certwright, *words], tmp_path / "log", api))
        stack.enter_context(running(["sh", "-c", started], tmp_path / "nginx.log", https))
        folder = tls / "default" / "web"
        first = served(folder / "ca.crt")
        subprocess.run([*certwright, "renew", "web"], check=True, capture_output=True)
        until_so(lambda: (folder / "tls.crt").read_bytes().strip() != first)
        until_so(lambda: served(folder / "ca.crt") == (folder / "tls.crt").read_bytes().strip())


def test_the_images_configuration_is_a_configuration(tmp_path: Path) -> None:
    (settings,) = re.findall(r"printf '%s\\n' (.*) \\", TEXT)
    path = tmp_path / "certwright.yaml"
    path.write_text("".join(line + "\n" for line in re.findall(r"'([^']*)'", settings)))
    context = program.make_context("certwright", ["version"])
    serve = program.get_command(context, "serve")
    assert serve is not None
    assert not Files(path, type(context)(serve, info_name="serve", parent=context)).problems
