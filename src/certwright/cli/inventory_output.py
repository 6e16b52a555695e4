"""The inventory of `certwright expiring`: certificates of files, TLS servers and Secrets of a cluster.

A record is one certificate at one place, printed as a table, JSON, YAML, CSV or metrics. docs/expiring.md
documents the keys.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from certwright.cli.format import print_table
from certwright.diagnosis.inventory import Record
from certwright.diagnosis.words import at
from certwright.kit import exposition
from certwright.kube.api.yaml_codec import write_yaml
from certwright.kube.util.encoding import one_line

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


HEADER: Final = ("SOURCE", "NAME", "ISSUER", "NOT AFTER", "DAYS LEFT", "RENEWS AT", "SERVED AT")


_EXPIRY = "certwright_inventory_expiration_timestamp_seconds"


_READABLE = "certwright_inventory_readable"


# A spreadsheet takes a cell that begins with one of these for a formula (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def show(records: Sequence[Record], now: datetime, *, headers: bool = True) -> None:
    """Print the records as a table."""
    print_table(HEADER, [_cells(record, now) for record in records], headers=headers)


def render(records: Sequence[Record], now: datetime, output: str) -> str:
    """The records in one of `FORMATS`; ends without a newline."""
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
    left = "-"
    if record.not_after is not None:
        # Rounded, as `status` has it.
        left = (
            "EXPIRED" if record.not_after <= now else str(round((record.not_after - now) / timedelta(days=1)))
        )
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
