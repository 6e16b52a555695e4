"""A stand-in for the reader's machine: paths below one folder, other ports, Pebble for Let's Encrypt.

nginx, HAProxy, Caddy and certwright are real. `systemctl` is a fake that reloads them, written from
systemctl(1).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from howto.blocks import FOLDER, File, Script, blocks
from support.pebble import Pebble

_SYSTEMCTL = """#!/bin/sh
# `systemctl reload nginx|haproxy`: starts the server if it does not run. One at a time, as jobs of systemd:
# the reader and certwright's --on-change may both ask for it.
set -e
if [ "$1" != reload ]; then echo "systemctl $*: not here" >&2; exit 1; fi
if [ "$2" = certwright ]; then exec kill -HUP "$(cat {run}/certwright)"; fi
pid={run}/$2.pid
exec 9>{lock}
flock 9
case "$2" in
  nginx) if [ -s "$pid" ]; then nginx -s reload 9>&-; else nginx 9>&-; fi ;;
  haproxy) if [ -s "$pid" ]; then kill -USR2 "$(cat "$pid")"
           else haproxy -W -D -p "$pid" -f {root}/etc/haproxy/haproxy.cfg 9>&-; fi ;;
  caddy) if [ -s "$pid" ]; then caddy reload --config {run}/Caddyfile --force
         else caddy start --config {run}/Caddyfile --pidfile "$pid" >{run}/caddy.log 2>&1 9>&-; fi ;;
  postfix) exit 0 ;;
  *) exit 1 ;;
esac
# The program that was started returns before the server has written its number and listens.
tls() {{ grep -rqsE ':{https} |^ +tls /' {root}/etc/nginx {root}/etc/haproxy {root}/etc/caddy; }}
for n in $(seq 100); do
    if [ -s "$pid" ] && {{ ! tls || bash -c 'exec 3<>/dev/tcp/127.0.0.1/{https}' 2>&9; }}; then break; fi
    sleep 0.1
done
"""
_NGINX = """#!/bin/sh
exec {program} -e {run}/nginx.log -c {run}/nginx.conf "$@"
"""
_NGINX_CONF = """worker_processes 1;
pid {run}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    include {root}/etc/nginx/conf.d/*.conf;
}}
"""
_CADDYFILE = """{{
    admin unix/{run}/caddy.sock
    default_bind 127.0.0.1
    http_port {http}
    https_port {https}
    persist_config off
    storage file_system {run}/caddy
}}
import {root}/etc/caddy/Caddyfile
"""
_ROOT = Path(__file__).parents[2]
_FAILS = re.compile(r"^(.*\S) +# fails.*$", re.M)
_PATH = re.compile(r"(?<![\w.}/-])/(etc|var|opt|srv)/")
_SERVER = re.compile(r"^( *)server: https://acme(?:-staging)?-v02\.api\.letsencrypt\.org/directory$", re.M)
_EXPORTED = re.compile(r"/etc/certwright/tls/\w+/[\w-]+/[\w.-]+\.(?:crt|key|pem)")
_ENTERED = re.compile(r"^cd (/etc/certwright/tls/\w+/[\w-]+)$", re.MULTILINE)
_ON_CHANGE = re.compile(r"--on-change '([^']+)'")
_NAMES = ("tls.crt", "tls.key", "ca.crt")
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ports:
    """What stands for 80, 443 and 8089."""

    http: int
    https: int
    acme: int


class Host:
    """The machine. `kubeconfig` is that of the running certwright."""

    def __init__(self, root: Path, ports: Ports, pebble: Pebble) -> None:
        self.root, self.ports, self.pebble = root, ports, pebble
        self.exported = root / "etc/certwright/tls"
        self.on_change = root / "on-change"
        self.data = root / "var/lib/certwright"
        self.kubeconfig = self.data / "kubeconfig"
        self.webroot = root / "var/www"
        self.api_port = 0
        self._run = root / "run"
        for folder in (self._run, root / "bin", self.exported, self.webroot, root / "etc/nginx/conf.d"):
            folder.mkdir(parents=True)
        self._lock = root / "systemctl.lock"
        names = {"root": root, "run": self._run, "program": shutil.which("nginx", path=_paths())}
        names["lock"] = self._lock
        names["http"], names["https"] = str(ports.http), str(ports.https)
        self._write("bin/systemctl", _SYSTEMCTL.format(**names))
        self._write("bin/nginx", _NGINX.format(**names))
        self._write("on-change", "#!/bin/sh\n")
        (root / "etc/certwright/tokens.csv").touch(mode=0o600)
        (self._run / "nginx.conf").write_text(_NGINX_CONF.format(**names))
        (self._run / "Caddyfile").write_text(_CADDYFILE.format(**names))

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def flags(self) -> list[str]:
        """Of `certwright serve` on this machine: those of the pages, and the stand-ins."""
        return [
            *("--data-dir", str(self.data), "--listen", "127.0.0.1:0", "--log-level", "warning"),
            *("--export", str(self.exported), "--on-change", str(self.on_change)),
            *("--token-auth-file", str(self.root / "etc/certwright/tokens.csv")),
            *("--http01-listen", f"127.0.0.1:{self.ports.acme}"),
            *("--http01-check-port", str(self.ports.http)),
            *("--webroot", str(self.webroot)),
            *("--acme-http01-solver-nameservers", self.pebble.names.address),
            *self._delivery_flags(),
        ]

    def _delivery_flags(self) -> list[str]:
        """Those of the unit on the page about Deliveries. Its roots exist, and its hooks find `systemctl`."""
        page = self.translated((FOLDER / "deliveries.md").read_text())
        words = shlex.split(page.partition("ExecStart=/")[2].splitlines()[0])
        options = []
        for flag, value in itertools.pairwise(words):
            if flag == "--delivery-root":
                Path(value.partition("=")[2]).mkdir(parents=True)
            elif flag == "--hook":
                name, _, command = value.partition("=")
                value = f'{name}=PATH="{self.root}/bin:$PATH"; {command}'
            elif flag != "--deployed-check-allow":
                continue
            options += [flag, value]
        return options

    def install(self, program: Path) -> None:
        """Make a program available to the commands of a page."""
        (self.root / "bin" / program.name).symlink_to(program)

    def started(self, pid: int, line: str) -> None:
        """certwright runs as that process and has printed that line."""
        (self._run / "certwright").write_text(str(pid))
        match = re.search(r"https://127\.0\.0\.1:(\d+)", line)
        assert match, line
        self.api_port = int(match[1])

    def environment(self) -> dict[str, str]:
        """Of the commands of a page."""
        tools = os.environ.get("CERTWRIGHT_TOOLS", str(_ROOT / ".tools"))
        folders = (self.root / "bin", Path(sys.executable).parent, _paths(), Path(tools) / "bin")
        path = os.pathsep.join(map(str, folders))
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.root)}

    def follow(self, page: Path) -> None:
        """Write the files of the page and run its commands. Raises `CalledProcessError`."""
        folder = self.root / "pages" / page.stem
        folder.mkdir(parents=True)
        if match := _ON_CHANGE.search(page.read_text()):
            self._write("on-change", f'#!/bin/sh\nPATH="{self.root}/bin:$PATH"\n{match[1]}\n')
        needed: set[str] = set()
        for block in blocks(page):
            needed |= set(_EXPORTED.findall(block.text))
            needed |= {f"{entered}/{name}" for entered in _ENTERED.findall(block.text) for name in _NAMES}
            text = self.translated(block.text)
            match block:
                case File(name):
                    path = Path(self.translated(name)) if name.startswith("/") else folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
                case Script():
                    if "certwright wait" not in text:
                        self._wait_for(needed)
                    self.run(text, folder)

    def _wait_for(self, exported: set[str]) -> None:
        """The export is a moment behind the Certificate."""
        deadline = time.monotonic() + _WAIT_S
        while missing := [path for path in exported if not Path(self.translated(path)).exists()]:
            assert time.monotonic() < deadline, f"not exported: {missing}"
            time.sleep(0.05)

    def run(self, script: str, folder: Path | None = None) -> str:
        """Run commands as the reader's shell does, and return what they printed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder or self.root,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def translated(self, text: str) -> str:
        """The text of a page for this machine."""
        ports = self.ports
        text = _FAILS.sub(r"if \1; then echo 'this did not fail'; exit 1; fi", text)
        text = _PATH.sub(rf"{self.root}/\1/", text)
        bundle = base64.b64encode(self.pebble.ca_bundle).decode()
        text = _SERVER.sub(rf"\1server: {self.pebble.directory}\n\1caBundle: {bundle}", text)
        for theirs, here in (
            ("listen 80;", f"listen 127.0.0.1:{ports.http};"),
            ("listen 443 ssl;", f"listen 127.0.0.1:{ports.https} ssl;"),
            ("bind *:80\n", f"bind 127.0.0.1:{ports.http}\n"),
            ("bind *:443 ", f"bind 127.0.0.1:{ports.https} "),
            ("127.0.0.1:443", f"127.0.0.1:{ports.https}"),
            ("127.0.0.1:8443", f"127.0.0.1:{self.api_port}"),
            ("pki.example.com:8443", f"127.0.0.1:{self.api_port}"),
            ("crds.enabled=true", "crds.enabled=false"),  # the server has them already
            (" deploy/helm/", f" {_ROOT}/deploy/helm/"),
            ("chgrp caddy ", f"chgrp {os.getgid()} "),
            ("127.0.0.1:8089", f"127.0.0.1:{ports.acme}"),
        ):
            text = text.replace(theirs, here)
        return text

    def clear(self) -> None:
        """Stop the servers of a page and remove their configuration."""
        self._write("on-change", "#!/bin/sh\n")
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for pid in self._run.glob("*.pid"):
                with contextlib.suppress(ProcessLookupError, ValueError):
                    end(int(pid.read_text()))
                pid.unlink(missing_ok=True)
        for path in (self.root / "etc/nginx/conf.d").iterdir():
            path.unlink()


def end(pid: int) -> None:
    """End a process that is no child of ours, and wait until it is gone: its ports are free then.

    Raises `ProcessLookupError` if it is not there.
    """
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        assert select.select([process], [], [], _WAIT_S)[0], f"process {pid} goes on after SIGTERM"
    finally:
        os.close(process)


def _paths() -> str:
    """The directories of programs; servers are in `sbin`."""
    return f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
