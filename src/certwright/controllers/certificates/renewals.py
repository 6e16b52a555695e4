"""Renewal planning from a certificate's dates, its spec, the maintenance windows, the wish of its CA (RFC
9773), and the end of that CA.

The plan depends on objects only, so it is the same in every round and after every restart. Certificates
issued in the same minute are spread. docs/renewal.md explains it for users.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from certwright.controllers.certificates.snapshot import Plan, Snapshot
from certwright.kube.util.durations import parse_duration
from certwright.pki import chain, renewal
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import CertificateSpec, Renewal

_SHORTEST_LIFE = timedelta(minutes=1)
# A server that calls every new certificate overdue would otherwise be asked for one after the other. Many
# set the beginning back by an hour.
_SOONEST_SUGGESTED = timedelta(hours=2)


class _Span(NamedTuple):
    """Renewal is planned for `begin`, and may be delayed by up to `by`; it is of use until `end`."""

    begin: datetime
    by: timedelta
    end: datetime


_NEVER = Plan(None)


def plan(snapshot: Snapshot, facts: CertificateFacts) -> Plan:
    """When the certificate `facts` in the target Secret is renewed.

    A `status.renewalTime` that is one of the possible moments is kept as it is: cert-manager writes the
    first of them.
    """
    if not snapshot.plans:
        snapshot.plans.append(_plan(snapshot, facts))
    return snapshot.plans[0]


def _plan(snapshot: Snapshot, facts: CertificateFacts) -> Plan:
    spec, status = snapshot.certificate.spec, snapshot.certificate.status
    if spec.renewal is not None and spec.renewal.is_disabled:
        return _NEVER
    seed = f"{snapshot.certificate.metadata.uid}/{status.revision or 0}"
    span, problem = _span(snapshot, facts, seed), ""
    if spec.renewal is not None and spec.renewal.windows:
        span, problem = _inside(spec.renewal, span, facts.not_before)
    stored = status.renewal_time
    if stored is not None and span.begin <= stored <= span.begin + span.by:
        return Plan(stored, problem)
    return Plan(renewal.put_off(span.begin, span.by, seed), problem)


def _span(snapshot: Snapshot, facts: CertificateFacts, seed: str) -> _Span:
    if (suggested := _suggested(snapshot, facts)) is not None:
        return suggested
    data = snapshot.secret.data if snapshot.secret else {}
    regular = _regular(facts, facts.not_after, snapshot.certificate.spec)
    end = chain.end_of(data.get(names.TLS_CERT_KEY, b""), data.get(names.CA_CERT_KEY, b""))
    if end is None or end >= facts.not_after or not snapshot.authority:
        return regular
    # The certificate outlives its CA, and is worthless afterwards.
    ca = snapshot.authority[0]
    if _signed(ca, snapshot):
        # A renewal gives a certificate that ends with this CA, so this certificate is treated as if it did.
        return min(regular, _regular(facts, end, snapshot.certificate.spec))
    # In the first two thirds of the time from `begin`, when the new CA existed, to the end of the old CA;
    # each certificate at another time. A certificate that is renewed in that time anyway is left alone.
    begin = max(facts.not_before + _SHORTEST_LIFE, ca.not_before)
    by = max((end - begin) * 2 / 3, timedelta(0))
    if regular.begin + regular.by <= begin + by:
        return regular
    return _Span(renewal.put_off(begin, by, seed), timedelta(0), end)


def _suggested(snapshot: Snapshot, facts: CertificateFacts) -> _Span | None:
    """The window that the ACME server suggests: "a uniform random time within" it (RFC 9773 §4.2), which a
    restart does not change. The window overrides the spec, because the server may know of a revocation."""
    acme = snapshot.certificate.status.acme
    ari = acme.ari if acme is not None else None
    if ari is None or ari.suggested_window is None or ari.last_checked is None:
        return None
    begin, end = ari.suggested_window.start, ari.suggested_window.end
    if begin is None or end is None or ari.last_checked < facts.not_before:
        return None
    begin = max(begin, facts.not_before + min(_SOONEST_SUGGESTED, (facts.not_after - facts.not_before) / 10))
    last = max(min(end, facts.not_after), begin)
    return _Span(begin, last - begin, facts.not_after)


def _regular(facts: CertificateFacts, end: datetime, spec: CertificateSpec) -> _Span:
    """The span by the certificate's dates and the spec.

    It begins a minute after the certificate at the earliest. Otherwise a CA in the last second of its
    lifetime would be asked again and again, as fast as it can answer.
    """
    begin = renewal.renewal_time(
        facts.not_before, end, spec.renew_before_duration, spec.renew_before_percentage
    )
    begin = max(begin, facts.not_before + _SHORTEST_LIFE)
    is_requested = (spec.renew_before_duration, spec.renew_before_percentage) != (None, None)
    longest = renewal.LONGEST_REQUESTED_SPREAD if is_requested else renewal.LONGEST_SPREAD
    return _Span(begin, renewal.spread(facts.not_before, begin, end, longest), end)


def _signed(ca: CertificateFacts, snapshot: Snapshot) -> bool:
    data = snapshot.secret.data if snapshot.secret else {}
    certificates = chain.readable(data.get(names.TLS_CERT_KEY, b""))
    return bool(certificates) and (ca in certificates[1:] or chain.is_issued_by(certificates[0], ca))


def _inside(spec: Renewal, span: _Span, not_before: datetime) -> tuple[_Span, str]:
    """The span moved into the maintenance windows, with a sentence where that is not possible."""
    try:
        windows = tuple(
            renewal.Window(window.cron, parse_duration(window.window_duration), window.timezone or "UTC")
            for window in spec.windows
        )
        slot = renewal.slot(windows, span.begin, span.end)
    except ValueError as error:
        return span, f"the maintenance windows cannot be read: {error}"
    if slot is None:
        begin, end, preferred = (
            f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (not_before, span.end, span.begin)
        )
        return span, f"cannot find a time with the given windows between {begin} and {end} for: {preferred}"
    by = span.by if slot.moment == span.begin else renewal.LONGEST_SPREAD
    room = renewal.spread(not_before, slot.moment, span.end)
    # Not beyond the end of the window: the next one may be a week away.
    return _Span(slot.moment, min(by, room, slot.room), span.end), ""
