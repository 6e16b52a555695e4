"""The status of a Delivery: the condition `Delivered` after an attempt, and `Deployed`, whether the
addresses of `spec.servedAt` serve the delivered certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from certwright.controllers.deliveries import permissions
from certwright.controllers.deliveries.permissions import CHECK_FLAG, DeliveryOptions, Refused
from certwright.kit.tls_scan import ScanFailed, TlsAddress
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.pki.certificates import CertificateFacts
from certwright.resources.delivery import Delivered, Delivery, DeliveryStatus, ServedAt, parse_address

DELIVERED: Final = "Delivered"
NOT_CHECKED: Final = "NotChecked"
"""The files have just been replaced; what the addresses serve is being checked."""
_UNCHECKED: Final = "the files contain another certificate; what the servers present is checked now"


class Attempts(msgspec.Struct, frozen=True):
    """Failed attempts in a row, and when the next follows."""

    failures: int
    due: datetime


def delivered_status(delivery: Delivery, certificate: CertificateFacts, now: datetime) -> DeliveryStatus:
    """The status after success; unchanged where nothing new was delivered."""
    message = (
        f"the files contain the certificate that expires on {certificate.not_after:%Y-%m-%d %H:%M:%S} UTC"
    )
    condition = Condition(type=DELIVERED, status="True", reason=permissions.DELIVERED, message=message)
    status = _replaced(delivery.status, certificate, now)
    return msgspec.structs.replace(
        status,
        failed_attempts=None,
        next_attempt=None,
        conditions=_with(delivery, status, condition, now),
    )


def failed_status(
    delivery: Delivery,
    refusal: Refused,
    attempts: Attempts | None,
    now: datetime,
    *,
    replaced: CertificateFacts | None = None,
) -> DeliveryStatus:
    """The status after a failure; `attempts` None: no attempt was made. `replaced`: the certificate in the
    files, where only the hook has failed."""
    status = delivery.status if replaced is None else _replaced(delivery.status, replaced, now)
    condition = Condition(type=DELIVERED, status="False", reason=refusal.reason, message=refusal.message)
    return msgspec.structs.replace(
        status,
        failed_attempts=attempts.failures if attempts is not None else None,
        next_attempt=attempts.due.replace(microsecond=0) if attempts is not None else None,
        conditions=_with(delivery, status, condition, now),
    )


def _replaced(status: DeliveryStatus, certificate: CertificateFacts, now: datetime) -> DeliveryStatus:
    fingerprint = sha256(certificate.der).hexdigest()
    if status.current is not None and status.current.fingerprint == fingerprint:
        return status
    current = Delivered(
        fingerprint=fingerprint, not_after=certificate.not_after, time=now.replace(microsecond=0)
    )
    unchecked = Condition(type=DEPLOYED, status="Unknown", reason=NOT_CHECKED, message=_UNCHECKED)
    # What was served before says nothing about the new certificate, and `wait` must not end by it.
    was = conditions.find(status.conditions, DEPLOYED)
    known = status.conditions if was is None else conditions.with_condition(status.conditions, unchecked, now)
    return msgspec.structs.replace(status, current=current, previous=status.current, conditions=known)


def _with(
    delivery: Delivery, status: DeliveryStatus, condition: Condition, now: datetime
) -> tuple[Condition, ...]:
    observed = msgspec.structs.replace(condition, observed_generation=delivery.metadata.generation)
    known = status.conditions
    if not delivery.spec.served_at:
        known = conditions.without(known, DEPLOYED)
    return conditions.with_condition(known, observed, now)


DEPLOYED: Final = "Deployed"
SERVED: Final = "Served"
"""All addresses of `servedAt` serve the delivered certificate."""
OLD_SERVED: Final = "OldCertificateServed"
"""An address still serves the certificate before."""
OTHER_SERVED: Final = "OtherCertificateServed"
"""An address serves a certificate that was not delivered."""
UNREACHABLE: Final = "Unreachable"
"""An address cannot be connected to."""
NOT_ALLOWED: Final = "NotAllowed"

Probe = Callable[[TlsAddress], Awaitable[bytes]]
"""Returns the DER of the certificate that is presented there. Raises `ScanFailed`."""


async def deployed(
    delivery: Delivery, certificate: CertificateFacts, options: DeliveryOptions, probe: Probe
) -> Condition:
    """The condition. Connects to all addresses at the same time, for at most ten seconds."""
    addresses = delivery.spec.served_at
    checks = (_problem(served, delivery, certificate, options, probe) for served in addresses)
    problems = [problem for problem in await asyncio.gather(*checks) if problem is not None]
    if not problems:
        where = ", ".join(served.address for served in addresses)
        return Condition(
            type=DEPLOYED, status="True", reason=SERVED, message=f"{where} serves the current certificate"
        )
    message = "stored and delivered, but " + "; ".join(problem.message for problem in problems)
    return Condition(type=DEPLOYED, status="False", reason=problems[0].reason, message=message)


class _Problem(NamedTuple):
    reason: str
    message: str


async def _problem(
    served: ServedAt,
    delivery: Delivery,
    certificate: CertificateFacts,
    options: DeliveryOptions,
    probe: Probe,
) -> _Problem | None:
    """Why the address does not count as served; None: it serves the certificate."""
    where = served.address
    address = parse_address(where)
    if address is None or not options.may_check(*address):
        return _Problem(
            NOT_ALLOWED,
            f"{where} is not an address that the operator allows; have certwright started with "
            f"{CHECK_FLAG} {where} (`deployedCheckAllow` in its configuration)",
        )
    host, port = address
    try:
        der = await probe(
            TlsAddress(host=host, port=port, server_name=served.server_name, protocol=served.protocol)
        )
    except ScanFailed as error:
        return _Problem(UNREACHABLE, str(error))
    if der == certificate.der:
        return None
    previous, current = delivery.status.previous, delivery.status.current
    since = ""
    if current is not None and current.time is not None:
        since = f" since {current.time:%Y-%m-%d %H:%M:%S} UTC"
    if previous is not None and previous.fingerprint == sha256(der).hexdigest():
        return _Problem(OLD_SERVED, f"{where} still serves the old certificate{since}")
    return _Problem(OTHER_SERVED, f"{where} serves another certificate{since}")
