"""A real daemon that is killed by SIGKILL while it delivers: a reader never sees half a pair, and the next
daemon completes the delivery, its hook included. CERTWRIGHT_SOAK=1 kills it at further moments.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.table import CERTIFICATES, DELIVERIES, ISSUERS
from cli.calls import Process
from support.programs import free_port
from support.world import eventually

# CPython's audit events announce what is about to happen. A file `deadly/EVENT NAME` makes that event the
# last of the process, once. VERSION stands for the name of a version of the files.
_DIES_BEFORE = """
import os, re, signal, sys
def audit(event, args):
    if event not in ("os.mkdir", "os.rename", "os.rmdir", "open", "subprocess.Popen"):
        return
    if event == "open" and not args[2] & os.O_CREAT:
        return
    name = os.path.basename(str(args[1 if event == "os.rename" else 0]))
    name = re.sub("^[.][.][0-9a-f]{16}$", "VERSION", name)
    deadly = f"deadly/{event} {name}"
    if os.path.exists(deadly):
        os.unlink(deadly)
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(audit)
"""
MOMENTS = {
    "open tls.key": "between the files of the pair",
    "os.rename ..data": "between the files and the switch of the link",
    "subprocess.Popen sh": "between the switch and the hook",
    "hook": "while the hook runs",
    "os.rename ..done": "after the hook, before its success is recorded",
}
if os.environ.get("CERTWRIGHT_SOAK"):
    MOMENTS |= {
        "os.mkdir VERSION": "before the first write",
        "open tls.crt": "before the first file",
        "os.rmdir VERSION": "after the switch, while the version before is removed",
    }
# The hook is a server that reads its certificate again.
_HOOK = """
if [ -e deadly/hook ]; then rm deadly/hook; kill -9 $PPID; exit; fi
cat tls/web/tls.crt > served.new && mv served.new served
"""


class Reader:
    """A program that reads the pair in a loop, as servers do."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stopped = folder, threading.Event()
        self.pairs: set[str] = set()
        """Digests of the pairs that belong together."""
        self.halves: list[str] = []

    def read(self) -> None:
        """Read until `stop`. What is read while the link stays the same is a pair, or half of one."""
        while not self._stopped.wait(0.001):
            before = self._version()
            certificate, key = self._content("tls.crt"), self._content("tls.key")
            digest = sha256(certificate + key).hexdigest()
            if before != self._version() or digest in self.pairs:
                continue
            if certificate and key and _belong_together(certificate, key):
                self.pairs.add(digest)
            else:
                self.halves.append(f"{certificate!r} and {len(key)} bytes of key")

    def stop(self) -> None:
        """End `read`."""
        self._stopped.set()

    def _version(self) -> Path:
        return (self._folder / "..data").readlink()

    def _content(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return b""


def _belong_together(certificate: bytes, key: bytes) -> bool:
    return public_key_der(load_private_key(key)) == read_certificate(certificate).public_key_der


class Daemon:
    """`certwright serve` in a folder, started again whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        words = ["serve", "--data-dir", "data", "--listen", f"127.0.0.1:{free_port()}"]
        self._words = [*words, "--delivery-root", "tls=tls", "--hook", f"server={_HOOK}"]
        self._process: Process | None = None
        self.client: Client

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = Process(*self._words, cwd=self._folder, prologue=_DIES_BEFORE)
        line = await asyncio.to_thread(self._process.line)
        assert line.startswith("certwright is ready at "), self._process.rest().err
        self.client = Client(connect(load(self._folder / "data/kubeconfig")), user_agent="test")

    async def end(self) -> None:
        """Wait until it has been killed."""
        assert self._process is not None
        outcome = await asyncio.to_thread(self._process.rest)
        assert outcome.status == -signal.SIGKILL, outcome
        await self.client.close()

    async def close(self) -> None:
        if self._process is not None:
            self._process.close()
        await self.client.close()

    async def create(self, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
        meta = {"name": name, "namespace": "default"}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        await self.client.create(kind, codec.from_dict(kind, body))

    async def renew(self) -> None:
        """Have the certificate issued again."""
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
        patch = {"status": {"conditions": [issuing]}}
        await self.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")

    async def is_delivered(self) -> bool:
        """Whether the files, and what the hook has read, are the Secret, and nothing else is left over."""
        try:
            secret = await self.client.get(SECRETS, "web", "default")
            delivery = await self.client.get(DELIVERIES, "web", "default")
        except (ApiError, Unreachable):
            return False
        try:
            return conditions.is_true(delivery.status.conditions, "Delivered") and self._has(secret.data)
        except FileNotFoundError:  # a version that was removed after its link was followed
            return False

    def _has(self, data: Mapping[str, bytes]) -> bool:
        files, served = self._folder / "tls/web", self._folder / "served"
        version = (files / "..data").readlink()
        return (
            (files / "tls.crt").read_bytes() == served.read_bytes() == data["tls.crt"]
            and (files / "tls.key").read_bytes() == data["tls.key"]
            and (files / "..done").readlink() == version
            and {path.name for path in files.iterdir()}
            == {"tls.crt", "tls.key", "ca.crt", "..data", "..done", str(version)}
        )


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Daemon]:
    """A daemon that has delivered once."""
    (folder / "tls").mkdir()
    (folder / "deadly").mkdir()
    daemon = Daemon(folder)
    await daemon.start()
    try:
        await daemon.create(ISSUERS, "own", {"selfSigned": {}})
        web = {"secretName": "web", "dnsNames": ["web.example"], "privateKey": {"algorithm": "ECDSA"}}
        await daemon.create(CERTIFICATES, "web", {**web, "issuerRef": {"name": "own"}})
        delivery = {"certificateRef": {"name": "web"}, "root": "tls", "path": "web", "hook": "server"}
        await daemon.create(DELIVERIES, "web", delivery)
        await eventually(lambda: asyncio.to_thread((folder / "served").exists))
        await eventually(daemon.is_delivered)
        yield daemon
    finally:
        await daemon.close()


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """A reader in a thread."""
    reader = Reader(folder)
    thread = threading.Thread(target=reader.read)
    thread.start()
    try:
        yield reader
    finally:
        reader.stop()
        thread.join()


async def test_a_delivery_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    async with running(tmp_path) as daemon:
        with reading(tmp_path / "tls/web") as reader:
            for moment in MOMENTS:
                (tmp_path / "deadly" / moment).touch()
                await daemon.renew()
                await daemon.end()
                await daemon.start()
                await eventually(daemon.is_delivered)
        assert reader.halves == []
        assert len(reader.pairs) >= len(MOMENTS)
