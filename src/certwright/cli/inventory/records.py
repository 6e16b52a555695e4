"""A record: one certificate at one place. Records are data; `rendering.py` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from certwright.kube.util.encoding import one_line
from certwright.pki.certificates import CertificateFacts


class Source(StrEnum):
    """Where a record was read."""

    CERTIFICATE = "Certificate"
    SECRET = "Secret"  # noqa: S105 - a kind
    FILE = "File"
    HOST = "Host"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate at one place.

    `name` is the object's, the file's path, or the host's address. `issuer` is the issuer's kind and name for
    a Certificate, otherwise the issuer's name in the certificate. `served_at` are the scanned hosts that
    present it and the files that contain it. `problem` is why it could not be read.
    """

    source: Source
    name: str
    namespace: str = ""
    issuer: str = ""
    names: tuple[str, ...] = ()
    serial_number: str = ""
    fingerprint: str = ""
    not_before: datetime | None = None
    not_after: datetime | None = None
    renewal_time: datetime | None = None
    served_at: tuple[str, ...] = ()
    problem: str = ""

    @property
    def place(self) -> str:
        """Namespace and name, the path, or the address."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def days_left(self, now: datetime) -> int | None:
        """Whole days until it expires, negative afterwards; None without a date."""
        return None if self.not_after is None else (self.not_after - now) // timedelta(days=1)

    def with_facts(self, facts: CertificateFacts) -> Record:
        """The record with what the certificate itself says; an issuer that is known stays."""
        return replace(
            self,
            issuer=self.issuer or issuer_of(facts),
            names=names_of(facts),
            serial_number=f"{facts.serial_number:x}",
            fingerprint=facts.fingerprint.hex(),
            not_before=facts.not_before,
            not_after=facts.not_after,
        )


def issuer_of(facts: CertificateFacts) -> str:
    """The issuer's name in the certificate, on one line."""
    return one_line(facts.issuer_text)


def names_of(facts: CertificateFacts) -> tuple[str, ...]:
    """Whom the certificate is for: its alternative names, or else its subject."""
    names = (*facts.dns_names, *facts.ip_addresses, *facts.uris, *facts.email_addresses)
    return tuple(map(one_line, names or (facts.subject_text,)))


def linked(records: Sequence[Record]) -> list[Record]:
    """The records, where each knows the hosts and files that have the same certificate."""
    places: dict[str, list[str]] = {}
    for record in records:
        if record.source in (Source.HOST, Source.FILE) and record.fingerprint:
            places.setdefault(record.fingerprint, []).extend((record.name, *record.served_at))
    return [
        replace(
            record,
            served_at=tuple(place for place in places.get(record.fingerprint, ()) if place != record.name),
        )
        for record in records
    ]


def soonest_first(records: Iterable[Record], now: datetime, within: timedelta | None) -> list[Record]:
    """The records by expiry, those without a date last; with `within` only those that end in that time."""
    chosen = [
        record
        for record in records
        if within is None or (record.not_after is not None and record.not_after - now <= within)
    ]
    return sorted(
        chosen, key=lambda record: (record.not_after is None, record.not_after or now, record.place)
    )
