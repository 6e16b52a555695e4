"""A real daemon that is killed by SIGKILL while it issues at a real CA: never a second order or account,
never a certificate whose key is lost. CERTWRIGHT_SOAK=n kills n daemons at random moments.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from cli.calls import Process
from support.acme_proxy import FINALIZE, NEW_ACCOUNT, NEW_ORDER, AcmeProxy, running_acme_proxy
from support.pebble import running_pebble, serving, shown
from support.programs import free_port

_ROUNDS = int(os.environ.get("CERTWRIGHT_SOAK") or 2)
_WITHIN_S = 400 + 10 * _ROUNDS
pytestmark = pytest.mark.timeout(3 * _WITHIN_S)
_LONGEST_S = 1.5  # about what an issuance takes
# In Pebble's words. The directory, nonces and renewal information change nothing.
_DEADLY = {"sign-me-up", "order-plz", "list-orderz", "authZ", "chalZ", "finalize-order", "my-order", "certZ"}


@dataclass(slots=True)
class Daemon:
    """One that is started again whenever it has been killed. Its client outlives it."""

    folder: Path
    words: list[str]
    client: Client = field(init=False)
    deaths: int = 0
    _process: Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._process = Process(*self.words, cwd=self.folder)
        line = await asyncio.to_thread(self._process.line)
        assert line.startswith("certwright is ready at "), self._process.rest().err

    def kill(self) -> None:
        """Kill it, as power failures do."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill(signal.SIGKILL)
            process.close()
            self.deaths += 1

    async def until_ready(self, name: str) -> None:
        """Return when the Certificate is Ready; a daemon that is dead is started again."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                if self._process is None:
                    await self.start()
                try:
                    certificate = await self.client.get(CERTIFICATES, name, "default")
                    if conditions.is_true(certificate.status.conditions, "Ready"):
                        return
                    assert not certificate.status.failed_issuance_attempts, certificate.status
                except (ApiError, Unreachable):
                    pass
                await asyncio.sleep(0.02)

    async def create(self, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
        meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        await self.client.create(kind, codec.from_dict(kind, manifest))

    async def certificate(self, name: str) -> None:
        spec = {
            "secretName": name,
            "dnsNames": [f"{name}.example.org", f"www.{name}.example.org"],
            "privateKey": {"algorithm": "ECDSA"},
            "issuerRef": {"name": "acme", "kind": "ClusterIssuer"},
        }
        await self.create(CERTIFICATES, name, spec)


@asynccontextmanager
async def scene(folder: Path, *, listens: bool = False) -> AsyncIterator[tuple[Daemon, AcmeProxy, Path]]:
    """A daemon, what counts and kills, and the web root whose pages outlive the daemon.

    A daemon that `listens` shows its proofs itself.
    """
    pages = folder / "pages"
    pages.mkdir()
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        if not listens:
            stack.enter_context(serving(pages, "127.0.0.1", pebble.http_port))
        proxy = await stack.enter_async_context(running_acme_proxy(pebble))
        words = ["serve", "--data-dir", "data", "--listen", f"127.0.0.1:{free_port()}"]
        words += ["--http01-check-port", str(pebble.http_port)]
        words += ["--acme-http01-solver-nameservers", pebble.names.address]
        words += (
            ["--http01-listen", f"127.0.0.1:{pebble.http_port}"] if listens else ["--webroot", str(pages)]
        )
        daemon = Daemon(folder, words)
        stack.callback(daemon.kill)
        await daemon.start()
        daemon.client = Client(connect(load(folder / "data/kubeconfig")), user_agent="test")
        stack.push_async_callback(daemon.client.close)
        yield daemon, proxy, pages


async def make_issuer(daemon: Daemon, proxy: AcmeProxy, pages: Path, *, listens: bool = False) -> None:
    """An issuer at the CA."""
    spec = {
        "server": proxy.directory,
        "caBundle": base64.b64encode(proxy.ca_bundle).decode(),
        "privateKeySecretRef": {"name": "acme-account"},
        "solvers": [{"http01": {"ingress": {}} if listens else {"webroot": {"path": str(pages)}}}],
    }
    await daemon.create(CLUSTER_ISSUERS, "acme", {"acme": spec})


async def leftovers(daemon: Daemon, pages: Path, names: list[str]) -> set[str]:
    """Challenges, their pages, and Secrets of keys that are used by now."""
    challenges = {challenge.metadata.name for challenge in (await daemon.client.list(CHALLENGES)).items}
    secrets = {secret.metadata.name for secret in (await daemon.client.list(SECRETS, "default")).items}
    pages_left = {str(page) for page in shown(pages)}
    return challenges | pages_left | (secrets - set(names))


async def check_end(daemon: Daemon, proxy: AcmeProxy, pages: Path, names: list[str]) -> None:
    """One account, one order and one key for each certificate, nothing left over."""
    assert proxy.agreed[NEW_ACCOUNT] == 1
    assert proxy.agreed[NEW_ORDER] == proxy.agreed[FINALIZE] == len(names)
    orders = (await daemon.client.list(ORDERS)).items
    assert sorted(order.status.state for order in orders) == ["valid"] * len(names)
    for name in names:
        data = (await daemon.client.get(SECRETS, name, "default")).data
        leaf = read_certificate(data["tls.crt"])
        assert public_key_der(load_private_key(data["tls.key"])) == leaf.public_key_der
    with suppress(TimeoutError):
        async with asyncio.timeout(_WITHIN_S):
            while await leftovers(daemon, pages, names):  # noqa: ASYNC110 - another process clears up
                await asyncio.sleep(0.05)
    assert await leftovers(daemon, pages, names) == set()


@pytest.mark.parametrize("listens", [False, True], ids=["web root", "own listener"])
async def test_a_daemon_that_is_killed_after_each_kind_of_request_orders_once(
    tmp_path: Path, *, listens: bool
) -> None:
    async with scene(tmp_path, listens=listens) as (daemon, proxy, pages):
        # A CA that is told to look finds nothing where the listener is dead, and calls that the end.
        left = _DEADLY - {"chalZ"} if listens else set(_DEADLY)
        deaths = len(left)

        def heard(kind: str) -> bool:
            """Kill it when a request of a kind has been answered for the first time."""
            if kind not in left:
                return True
            left.discard(kind)
            daemon.kill()
            return False

        proxy.heard = heard
        # The daemon dies of the issuer already: both are made first.
        await daemon.certificate("web")
        await make_issuer(daemon, proxy, pages, listens=listens)
        await daemon.until_ready("web")
        await check_end(daemon, proxy, pages, ["web"])
        assert (left, daemon.deaths) == (set(), deaths)


async def test_a_daemon_that_is_killed_at_random_moments_orders_once(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with scene(tmp_path) as (daemon, proxy, pages):
        await make_issuer(daemon, proxy, pages)
        names = [f"web{number}" for number in range(_ROUNDS)]
        for name in names:
            await daemon.certificate(name)
            await asyncio.sleep(dice.uniform(0, _LONGEST_S))
            daemon.kill()
            await daemon.until_ready(name)
        await check_end(daemon, proxy, pages, names)
