"""cert-manager's own controllers on our API server: `make third-party`.

Starts `certwright serve --controllers ''` and cert-manager's controllers beside it, creates Certificates from
several connections, and checks what the controllers made of them. Ends with 1 when a check fails, with 2 when
something could not be started.

cert-manager decides from the caches of several watches. A cache of Secrets that is behind the cache of
Certificates makes it issue a certificate twice; the API server writes the events in order, the caches of one
program are still filled independently. `TWICE_PERCENT` is the tolerance.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.core_kinds import EVENTS
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import Issuer
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from conformance.daemon import running_daemon
from controllers.scene import make_ca_issuer, make_certificate, make_issuer
from support.programs import spawn, stop, tool

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

    def failures(self) -> list[str]:
        """One sentence for each check that failed."""
        twice, tolerated = self.issues - self.certificates, self.certificates * TWICE_PERCENT / 100
        checks = {
            f"{self.certificates - self.ready} Certificates are not Ready": self.ready == self.certificates,
            f"{twice} certificates were issued again, {tolerated:g} are tolerated": twice <= tolerated,
            f"{self.unapproved} CertificateRequests are not approved": not self.unapproved,
            f"the server answered {self.server_errors} requests with 5xx": not self.server_errors,
            f"Warning Events: {', '.join(self.warnings)}": not self.warnings,
        }
        return [sentence for sentence, passed in checks.items() if not passed]


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="make third-party ARGS=…", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--certificates", type=int, default=500, help="default: %(default)s")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="third-party-") as folder:
            outcome = run(Path(folder), arguments.certificates)
    except (pytest.skip.Exception, pytest.fail.Exception, TimeoutError) as error:
        print(f"third-party: {error}", file=sys.stderr)
        return 2
    print(
        f"{outcome.ready} of {outcome.certificates} Certificates Ready in {outcome.seconds:.1f} s,"
        f" {outcome.issues - outcome.certificates} of them issued twice"
    )
    failures = outcome.failures()
    for failure in failures:
        print(f"WRONG: {failure}")
    return 1 if failures else 0


def run(folder: Path, certificates: int) -> Outcome:
    """Issue `certificates` with cert-manager's controllers. Raises `TimeoutError`."""
    program = tool("cert-manager-controller", made_by="third-party")
    log = folder / "cert-manager.log"
    with running_daemon(folder, "--controllers", "") as daemon, log.open("wb") as out:
        process = spawn([str(program), str(daemon.kubeconfig)], out)
        try:
            return asyncio.run(_issue(daemon.kubeconfig, certificates))
        finally:
            stop(process)


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
    return all(map(_is_ready, (await client.list(CERTIFICATES, "default")).items))


def _is_ready(obj: Certificate | Issuer) -> bool:
    return conditions.is_true(obj.status.conditions, "Ready")


if __name__ == "__main__":
    sys.exit(main())
