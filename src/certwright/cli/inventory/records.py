"""A record: one certificate at one place. Printed as a table, JSON, YAML, CSV or metrics.

docs/expiring.md documents the keys.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from certwright.cli.format import at, lines_of
from certwright.kit import exposition
from certwright.kube.api.yaml_codec import write_yaml
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


Json = dict[str, Any]
FORMATS: Final = ("json", "yaml", "csv", "prometheus")
KEYS: Final = (
    "source",
    "namespace",
    "name",
    "names",
    "issuer",
    "serialNumber",
    "fingerprint",
    "notBefore",
    "notAfter",
    "daysLeft",
    "renewalTime",
    "servedAt",
    "problem",
)
"""The keys of a record in JSON and YAML, and the columns of CSV."""
_HEADER = ("SOURCE", "NAME", "ISSUER", "NOT AFTER", "DAYS LEFT", "RENEWS AT", "SERVED AT")
_EXPIRY = "certwright_inventory_expiration_timestamp_seconds"
_READABLE = "certwright_inventory_readable"
# A spreadsheet takes a cell that begins with one of these for a formula (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(records: Sequence[Record], now: datetime, output: str | None) -> str:
    """The records in one of `FORMATS`, or as a table; ends without a newline."""
    if output is None:
        return "\n".join(lines_of([_HEADER, *(_cells(record, now) for record in records)]))
    if output == "prometheus":
        return _prometheus(records)
    content = [as_json(record, now) for record in records]
    if output == "csv":
        return _csv(content)
    if output == "yaml":
        return write_yaml(content).rstrip("\n")
    return msgspec.json.format(msgspec.json.encode(content)).decode()


def as_json(record: Record, now: datetime) -> Json:
    """The stable form of a record: all keys in every record, null for what is unknown."""
    values = (
        record.source.value,
        record.namespace or None,
        record.name,
        list(record.names),
        record.issuer or None,
        record.serial_number or None,
        record.fingerprint or None,
        _time(record.not_before),
        _time(record.not_after),
        record.days_left(now),
        _time(record.renewal_time),
        list(record.served_at),
        record.problem or None,
    )
    return dict(zip(KEYS, values, strict=True))


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cells(record: Record, now: datetime) -> list[str]:
    days = record.days_left(now)
    left = "-" if days is None else "EXPIRED" if days < 0 else str(days)
    return [
        record.source.value,
        one_line(record.place),
        record.issuer or "-",
        at(record.not_after) if record.not_after else "-",
        left,
        at(record.renewal_time) if record.renewal_time else "-",
        one_line(", ".join(record.served_at)) or "-",
    ]


def _csv(content: Sequence[Json]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(KEYS)
    lines.writerows([_csv_cell(value) for value in row.values()] for row in content)
    return text.getvalue().rstrip("\n")


def _csv_cell(value: Any) -> Any:
    text = " ".join(value) if isinstance(value, list) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text


def _prometheus(records: Sequence[Record]) -> str:
    # One sample per set of labels: the scan of one address may appear once only.
    by_labels = {exposition.labels(_labels(record)): record for record in records}
    lines = [exposition.head(_EXPIRY, "gauge", "When the certificate expires, in Unix time.")]
    lines += [
        f"{_EXPIRY}{{{labels}}} {record.not_after.timestamp():.0f}\n"
        for labels, record in by_labels.items()
        if record.not_after is not None
    ]
    lines.append(exposition.head(_READABLE, "gauge", "Whether a certificate was read at that place."))
    lines += [
        f"{_READABLE}{{{labels}}} {int(record.not_after is not None)}\n"
        for labels, record in by_labels.items()
    ]
    return "".join(lines).rstrip("\n")


def _labels(record: Record) -> list[tuple[str, str]]:
    # Not the issuer: the series of a place would end when it changes.
    return [("source", record.source.value), ("namespace", record.namespace), ("name", record.name)]
