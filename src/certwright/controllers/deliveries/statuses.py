"""The status of a Delivery after an attempt."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec

from certwright.controllers.deliveries import refusals
from certwright.controllers.deliveries.checks import DEPLOYED
from certwright.controllers.deliveries.refusals import Refused
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.pki.certificates import CertificateFacts
from certwright.resources.delivery import Delivered, Delivery, DeliveryStatus

DELIVERED: Final = "Delivered"


class Attempts(msgspec.Struct, frozen=True):
    """Failed attempts in a row, and when the next follows."""

    failures: int
    due: datetime


def delivered_status(delivery: Delivery, certificate: CertificateFacts, now: datetime) -> DeliveryStatus:
    """The status after success; unchanged where nothing new was delivered."""
    message = (
        f"the files contain the certificate that expires on {certificate.not_after:%Y-%m-%d %H:%M:%S} UTC"
    )
    condition = Condition(type=DELIVERED, status="True", reason=refusals.DELIVERED, message=message)
    return msgspec.structs.replace(
        _replaced(delivery.status, certificate, now),
        failed_attempts=None,
        next_attempt=None,
        conditions=_with(delivery, condition, now),
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
        conditions=_with(delivery, condition, now),
    )


def _replaced(status: DeliveryStatus, certificate: CertificateFacts, now: datetime) -> DeliveryStatus:
    fingerprint = sha256(certificate.der).hexdigest()
    if status.current is not None and status.current.fingerprint == fingerprint:
        return status
    current = Delivered(
        fingerprint=fingerprint, not_after=certificate.not_after, time=now.replace(microsecond=0)
    )
    return msgspec.structs.replace(status, current=current, previous=status.current)


def _with(delivery: Delivery, condition: Condition, now: datetime) -> tuple[Condition, ...]:
    observed = msgspec.structs.replace(condition, observed_generation=delivery.metadata.generation)
    known = delivery.status.conditions
    if not delivery.spec.served_at:
        known = conditions.without(known, DEPLOYED)
    return conditions.with_condition(known, observed, now)
