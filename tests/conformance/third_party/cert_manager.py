"""cert-manager's own controllers on `certwright serve --controllers ''`.

Creates Certificates from several connections, and checks what the controllers made of them. cert-manager
decides from the caches of several watches. A cache of Secrets that is behind the cache of Certificates
makes it issue a certificate twice; the API server writes the events in order, the caches of one program are
still filled independently. `TWICE_PERCENT` is the tolerance.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certwright.kube.api import conditions
from certwright.kube.api.core import EVENTS
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import Issuer
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from conformance.daemon import running_daemon
from conformance.third_party.chart import Check
from controllers.scene import make_ca_issuer, make_certificate, make_issuer
from support.programs import running, tool

TWICE_PERCENT: Final = 1.0
_CONNECTIONS: Final = 8
_READY_WITHIN_S: Final = 600.0
_LOOK_EVERY_S: Final = 1.0
_FAILED_REQUESTS = re.compile(r'^apiserver_request_total\{.*code="5\d\d".*\} (\d+)', re.MULTILINE)
_EXPECTED_WARNINGS: Final = frozenset({"ErrGetKeyPair", "ErrInitIssuer", "RequestFailed"})
"""The CA's Issuer exists before its Secret. A controller whose cache lacks a CertificateRequest that it has
created tries to create it again, which the name prevents: "already exists"."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the run has shown; `issues` counts every time that a certificate was issued."""

    certificates: int
    ready: int
    issues: int
    seconds: float
    unapproved: int
    warnings: tuple[str, ...]
    server_errors: int

    @property
    def checks(self) -> list[Check]:
        """The checks of this run."""
        twice, tolerated = self.issues - self.certificates, self.certificates * TWICE_PERCENT / 100
        return [
            Check(
                f"{self.ready} of {self.certificates} Certificates Ready in {self.seconds:.1f} s",
                self.ready == self.certificates,
            ),
            Check(f"{twice} certificates issued again ({tolerated:g} are tolerated)", twice <= tolerated),
            Check(f"{self.unapproved} CertificateRequests not approved", not self.unapproved),
            Check(f"{self.server_errors} requests answered with 5xx", not self.server_errors),
            Check(f"Warning Events: {', '.join(self.warnings) or 'none'}", not self.warnings),
        ]


def run(folder: Path, certificates: int) -> list[Check]:
    """Issue `certificates` with cert-manager's controllers. Raises `TimeoutError`."""
    program = tool("cert-manager-controller", made_by="third-party")
    with (
        running_daemon(folder, "--controllers", "") as daemon,
        running([str(program), str(daemon.kubeconfig)], folder / "cert-manager.log"),
    ):
        return asyncio.run(_issue(daemon.kubeconfig, certificates)).checks


async def _issue(kubeconfig: Path, number: int) -> Outcome:
    client = Client(connect(load(kubeconfig)), user_agent="third-party")
    try:
        await client.create(ISSUERS, make_issuer("root"))
        await client.create(
            CERTIFICATES, make_certificate("ca", "root", is_ca=True, common_name="CA", dns_names=())
        )
        await client.create(ISSUERS, make_ca_issuer("ca", "ca"))
        await _until(lambda: _issuers_are_ready(client))
        begin = time.monotonic()
        await _create_all(client, [make_certificate(f"web-{each}", "ca") for each in range(number)])
        await _until(lambda: _all_are_ready(client))
        return await _outcome(client, time.monotonic() - begin)
    finally:
        await client.close()


async def _create_all(client: Client, certificates: list[Certificate]) -> None:
    remaining = iter(certificates)

    async def create_some() -> None:
        for certificate in remaining:
            await client.create(CERTIFICATES, certificate)

    await asyncio.gather(*(create_some() for _ in range(_CONNECTIONS)))


async def _outcome(client: Client, seconds: float) -> Outcome:
    certificates = (await client.list(CERTIFICATES, "default")).items
    requests = (await client.list(CERTIFICATE_REQUESTS, "default")).items
    events = (await client.list(EVENTS, "default")).items
    response = await client.raw("GET", "/metrics")
    failed = _FAILED_REQUESTS.findall(response.body.decode())
    return Outcome(
        certificates=len(certificates),
        ready=sum(map(_is_ready, certificates)),
        issues=sum(certificate.status.revision or 0 for certificate in certificates),
        seconds=seconds,
        unapproved=sum(not conditions.is_true(each.status.conditions, "Approved") for each in requests),
        warnings=tuple(
            {e.reason for e in events if e.type == "Warning" and e.reason not in _EXPECTED_WARNINGS}
        ),
        server_errors=sum(map(int, failed)),
    )


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    """Raises `TimeoutError`."""
    async with asyncio.timeout(_READY_WITHIN_S):
        while not await check():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_LOOK_EVERY_S)


async def _issuers_are_ready(client: Client) -> bool:
    return all(map(_is_ready, (await client.list(ISSUERS, "default")).items))


async def _all_are_ready(client: Client) -> bool:
    # The revision is written after the condition, by another of cert-manager's controllers.
    certificates = (await client.list(CERTIFICATES, "default")).items
    return all(_is_ready(each) and each.status.revision for each in certificates)


def _is_ready(obj: Certificate | Issuer) -> bool:
    return conditions.is_true(obj.status.conditions, "Ready")
