"""A clean machine for the reader of a page, in namespaces of its own: paths, ports and users are the page's.

The machine has this one's programs and its /etc, /var, … as they are installed; what a page writes there is
gone with the machine. It needs root and Linux' overlay file system. `systemctl` is a stand-in
(`support.systemd`), and Let's Encrypt is Pebble.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from howto.blocks import File, Script, blocks
from support import systemd
from support.bind import running_bind
from support.pebble import Pebble, running_pebble
from support.real import missing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_CHANGED = ("etc", "var", "opt", "srv", "root", "home", "run", "usr/bin", "usr/local", "usr/lib/polkit-1")
_START = """
set -e
mount -t tmpfs tmpfs {folder}
for name in {changed}; do
    [ -d /$name ] || continue
    mkdir -p {folder}/upper/$name {folder}/work/$name
    layers=lowerdir=/$name,upperdir={folder}/upper/$name,workdir={folder}/work/$name
    mount -t overlay overlay -o $layers /$name
done
ip link set lo up
rm -rf /var/lib/certwright /etc/certwright /run/systemctl.sock /run/units
rm -f /etc/nginx/sites-enabled/*
mkdir -p /opt/python /opt/certwright/bin /opt/certwright/{library}
mount --bind {python} /opt/python
mount --bind {packages} /opt/certwright/{library}
ln -s /opt/python/bin/python{version} /opt/certwright/bin/python
echo 'home = /opt/python/bin' > /opt/certwright/pyvenv.cfg
echo '#!/opt/certwright/bin/python' > /opt/certwright/bin/certwright
tail -n +2 {program} >> /opt/certwright/bin/certwright
chmod 755 /opt/certwright/bin/certwright
ln -s /opt/certwright/bin/certwright /usr/bin/certwright
getent passwd caddy >/dev/null || useradd --system --user-group -m --home-dir /var/lib/caddy caddy
mkdir -p /run/systemd/system /run/haproxy /etc/polkit-1/rules.d /usr/lib/polkit-1
touch /usr/lib/polkit-1/polkitd
cp -r {here}/machine/. /
(echo '#!/opt/certwright/bin/python -IS'; cat {systemd}) > /usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
mkdir -p /root/page
echo "127.0.0.1 pki.example.com" >> /etc/hosts
ln -s {root}/deploy {root}/examples /root/page/
"""
_SERVER = re.compile(r"^( *)server: https://acme(?:-staging)?-v02\.api\.letsencrypt\.org/directory$", re.M)
_FAILS = re.compile(r"^(.*\S) +# fails.*$", re.M)
_NETWORK = 0x40000000
"""CLONE_NEWNET of setns(2)."""
_WAIT_S = 120.0


class Host:
    """The machine, from `running` on."""

    def __init__(self, process: subprocess.Popen[str], pid: int) -> None:
        self._process, self._pid = process, pid
        self.pebble: Pebble | None = None
        self._checks = ""
        self.variables: dict[str, str] = {}

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """This thread, and what it starts, are in the machine's network."""
        with (
            Path("/proc/thread-self/ns/net").open() as ours,
            Path(f"/proc/{self._pid}/ns/net").open() as theirs,
        ):
            _enter(theirs.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    @contextlib.contextmanager
    def lets_encrypt(self) -> Iterator[None]:
        """Pebble stands for Let's Encrypt; it looks at ports 80 and 443 of this machine for all names."""
        with running_pebble(http_port=80, tls_port=443) as pebble:
            self._use(pebble, f"acmeHttp01SolverNameservers: {pebble.names.address}")
            yield

    @contextlib.contextmanager
    def cloudflare(self) -> Iterator[None]:
        """BIND stands for a DNS host, and Pebble, which asks it, for Let's Encrypt."""
        with (
            running_bind(["example.com"]) as bind,
            running_pebble(names=bind.address, http_port=80, tls_port=443) as pebble,
        ):
            name = "hmacsha256"
            lines = [f"server = {bind.address}", f"name = {name}", f"secret = {bind.secrets[name]}"]
            self.write(Path("/root/bind.ini"), "\n".join([*lines, f"algorithm = {name}"]))
            self._checks = (
                f"--dns01-recursive-nameservers {bind.address} --dns01-recursive-nameservers-only true"
            )
            self._use(
                pebble, f"dns01RecursiveNameservers: {bind.address}\ndns01RecursiveNameserversOnly: true"
            )
            yield

    def _use(self, pebble: Pebble, settings: str) -> None:
        self.pebble = pebble
        self.write(Path("/root/pebble.pem"), pebble.ca_bundle.decode())
        self.write(Path("/etc/certwright/conf.d/99-test.yaml"), f"{settings}\n")

    def follow(self, text: str) -> None:
        """Write the files of a page and run its commands."""
        for block in blocks(text):
            content = self.translated(block.text)
            match block:
                case File(name):
                    self.write(Path("/root/page") / name, content)
                case Script():
                    self.run(content)

    def write(self, path: Path, text: str) -> None:
        """Write a file of the machine."""
        self.run(f"mkdir -p {path.parent} && cat > {path}", text)

    def run(self, script: str, given: str = "") -> str:
        """Run commands as the reader's shell does, as root, and return what they printed."""
        command = ["nsenter", "-t", str(self._pid), "-m", "-n", "-p", "bash", "-euo", "pipefail", "-c"]
        done = subprocess.run(
            [*command, f"cd /root/page\n{script}"],
            env={**self.environment(), **self.variables},
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @staticmethod
    def environment() -> dict[str, str]:
        """Of the commands of a page."""
        tools = Path(os.environ.get("CERTWRIGHT_TOOLS") or ROOT / ".tools") / "bin"
        folders = [
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ROOT / ".venv-servers/bin",
            tools,
        ]
        path = os.pathsep.join(map(str, folders))
        return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "CERTWRIGHT_REPOSITORY": str(ROOT)}

    def translated(self, text: str) -> str:
        """The text of a page, with Pebble for Let's Encrypt."""
        text = text.replace("crds.enabled=true", "crds.enabled=false")  # the server has them already
        text = _FAILS.sub(r"if \1; then echo 'this did not fail'; exit 1; fi", text)
        if self.pebble is not None:
            bundle = base64.b64encode(self.pebble.ca_bundle).decode()
            text = _SERVER.sub(rf"\1server: {self.pebble.directory}\n\1caBundle: {bundle}", text)
            options = f"letsencrypt --server {self.pebble.directory} --ca-file /root/pebble.pem"
            text = text.replace("create issuer letsencrypt", f"create issuer acme {options}")
            text = text.replace("certwright check solver", f"certwright check solver {self._checks}")
            text = text.replace(
                "--dns01 cloudflare --credentials cloudflare.ini",
                "--dns01 rfc2136 --credentials /root/bind.ini",
            )
        return text


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Host]:
    """A machine that has nothing of certwright but its program. Skips the test where there can be none."""
    if os.geteuid() != 0:
        missing("a machine for a page is made by root only")
    script = _START.format(
        folder=folder,
        changed=" ".join(_CHANGED),
        here=HERE,
        systemd=systemd.__file__,
        root=ROOT,
        python=sys.base_prefix,
        packages=sysconfig.get_path("purelib"),
        version=sysconfig.get_python_version(),
        library=Path(sysconfig.get_path("purelib")).relative_to(sys.prefix),
        program=Path(sys.executable).parent / "certwright",
    )
    manager = "systemctl serve & echo ready; while read -r line; do :; done"
    process = subprocess.Popen(
        ["unshare", "-m", "-n", "-p", "-f", "--kill-child", "--mount-proc", "bash", "-c", script + manager],
        env=Host.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            missing(f"no machine for a page: {process.stderr.read()}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        host = Host(process, int(children.read_text().split()[0]))
        _wait_for(host, systemd.SOCKET)
        with host.network():
            yield host
    finally:
        process.kill()
        process.communicate()


def _wait_for(host: Host, path: Path) -> None:
    host.run(f"for n in $(seq 600); do [ -e {path} ] && exit 0; sleep 0.05; done; exit 1")


def _enter(network: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(network, _NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")
