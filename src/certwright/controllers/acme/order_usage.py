"""What an Order uses of a CA's rate limits: what it asks of a ledger, and what its state means there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from certwright.acme.ratelimits import recovery
from certwright.acme.ratelimits.decisions import Asking
from certwright.acme.ratelimits.ledger import Ledger
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import owner_value
from certwright.kube.util.clock import Clock
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.acme import Order, OrderSpec

# How long ago a CA may have issued for the same names for the next order to count as a renewal: Boulder's.
_RENEWAL_WITHIN: Final = timedelta(days=120)
# CAs date their certificates back: Let's Encrypt by an hour.
_BACKDATED: Final = timedelta(hours=1)


class OrderUsage:
    """Finds the earlier Orders of a Certificate in `caches`."""

    def __init__(self, caches: Caches, clock: Clock) -> None:
        self._caches = caches
        self._clock = clock

    def asking(self, order: Order, account: str, *, replaces: bool) -> Asking:
        """What the Order asks for. `replaces`: it names the certificate that it replaces."""
        meta = order.metadata
        return Asking(
            uid=meta.uid,
            account=account,
            identifiers=_identifiers(order.spec),
            since=meta.creation_timestamp or self._clock.now(),
            replaces=replaces,
            renewal=not replaces and self._is_renewal(order),
        )

    def _is_renewal(self, order: Order) -> bool:
        """Whether an earlier Order of the same Certificate got one for just these names, there and lately."""
        certificate = order.metadata.annotations.get(names.CERTIFICATE_NAME)
        if not certificate:
            return False
        now, identifiers = self._clock.now(), set(_identifiers(order.spec))
        oldest, born = now - _RENEWAL_WITHIN, order.metadata.creation_timestamp or now
        return any(
            other.status.state == "valid"
            and other.metadata.uid != order.metadata.uid
            and other.spec.issuer_ref == order.spec.issuer_ref
            and oldest < (other.metadata.creation_timestamp or oldest) <= born
            and set(_identifiers(other.spec)) == identifiers
            for other in self._caches.orders_for_certificate(
                owner_value(order.metadata.namespace, certificate)
            )
        )

    def seen(self, order: Order, account: str, *, is_newer: bool) -> recovery.Seen:
        """What the Order shows after a restart. `is_newer`: it has changed since the ledger was written."""
        now, status = self._clock.now(), order.status
        by = now
        if status.state == "valid":
            by = min(now, _issued_by(status.certificate, now))
        elif status.is_final:
            by = status.failure_time or now
        end = recovery.ISSUED if status.state == "valid" else recovery.FAILED if status.is_final else ""
        asking = self.asking(order, account, replaces=bool(order.spec.replaces))
        return recovery.Seen(asking, is_newer, bool(status.url), end, by, by)


def count(ledger: Ledger, order: Order, now: datetime, *, is_gone: bool) -> None:
    """Record what the Order's present state means for the limits."""
    uid = order.metadata.uid
    if not is_gone and order.status.url:
        ledger.placed(uid, now)
    if not is_gone and order.status.is_final:
        end = ledger.issued if order.status.state == "valid" else ledger.failed
        end(uid, now)
    if is_gone or order.status.is_final:
        ledger.forget(uid, now)


def _identifiers(spec: OrderSpec) -> tuple[str, ...]:
    identifiers = (*spec.dns_names, *spec.ip_addresses, *((spec.common_name,) if spec.common_name else ()))
    return tuple(dict.fromkeys(identifiers))


def _issued_by(pem: bytes, now: datetime) -> datetime:
    """A moment by which the certificate had been issued."""
    try:
        return read_certificate(pem).not_before + _BACKDATED
    except PkiError:
        return now
