"""Certificates of files, TLS servers and Secrets of a cluster: one record for a certificate at one place."""

from __future__ import annotations

import asyncio
import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from certwright.diagnosis import related
from certwright.diagnosis.certificates import issuer_ref
from certwright.diagnosis.words import parse_time, sentence
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import ApiError, Forbidden
from certwright.kube.client.rest import Client
from certwright.kube.util.encoding import in_words, one_line
from certwright.pki.certificates import CertificateFacts, read_certificate, read_der
from certwright.pki.errors import PkiError
from certwright.pki.pem import certificates_in
from certwright.resources import names

_LARGEST: Final = 4 * 2**20
"""Bytes. All CA certificates of a system are about 250 kB."""


def read_files(patterns: Sequence[str]) -> tuple[list[Record], list[str]]:
    """Read the files, folders and patterns (`/etc/nginx/*.pem`, `**` included). Returns their records, and
    what could not be read, as clauses with the file.

    In a folder, at any depth, whatever is not a certificate is skipped; links to folders are not followed. A
    file that is named must be one. The first certificate of each file counts. Files with the same certificate
    are one record, with the first path.
    """
    problems: list[str] = []
    by_fingerprint: dict[str, Record] = {}
    for pattern in patterns:
        paths = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        if not paths:
            problems.append(f"{pattern}: there is no such file")
        for path in paths:
            for record in _records(Path(path), problems, is_named=path == pattern):
                first = by_fingerprint.get(record.fingerprint)
                if first is None:
                    by_fingerprint[record.fingerprint] = record
                elif record.name != first.name and record.name not in first.served_at:
                    others = (*first.served_at, record.name)
                    by_fingerprint[record.fingerprint] = replace(first, served_at=others)
    return list(by_fingerprint.values()), problems


def _records(path: Path, problems: list[str], *, is_named: bool) -> Iterator[Record]:
    if not path.is_dir():
        yield from _of_file(path, problems, is_named=is_named)
        return

    def report(error: OSError) -> None:
        problems.append(f"{error.filename}: {in_words(error)}")

    for folder, subfolders, files in os.walk(path, onerror=report):
        # The versions of an export or a Kubernetes volume; links beside them name the current one.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".."))
        for name in sorted(files):
            yield from _of_file(Path(folder, name), problems, is_named=False)


def _of_file(path: Path, problems: list[str], *, is_named: bool) -> Iterator[Record]:
    try:
        status = path.stat()
        # What is no regular file (reading a pipe would wait for ever), or too large, is not read.
        is_read = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST
        facts = _first_certificate(path.read_bytes()) if is_read else None
    except OSError as error:
        problems.append(f"{path}: {in_words(error)}")
        return
    except PkiError as error:
        problems.append(f"{path}: {error}")
        return
    if facts is not None:
        yield Record(source=Source.FILE, name=str(path)).with_facts(facts)
    elif is_named:
        problems.append(f"{path}: there is no certificate in it (expected is PEM or DER)")


def _first_certificate(content: bytes) -> CertificateFacts | None:
    if content[:1] == b"\x30":
        try:
            return read_der(content)
        except PkiError:
            return None  # Most DER files are something else.
    first = next(certificates_in(content), None)
    return None if first is None else read_certificate(first)


_AT_A_TIME = 32


async def scan_hosts(addresses: Sequence[TlsAddress], *, timeout_s: float) -> list[Record]:
    """A record for each address in their order; where none could be read, its `problem` says why."""
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def scan(address: TlsAddress) -> Record:
        async with slots:
            record = Record(source=Source.HOST, name=str(address))
            try:
                der = await presented_certificate(address, timeout_s=timeout_s)
                return record.with_facts(read_der(der))
            except ScanFailed as error:
                return replace(record, problem=str(error))
            except PkiError as error:
                return replace(record, problem=f"{address} presents what cannot be read: {error}")

    return list(await asyncio.gather(*map(scan, dict.fromkeys(addresses))))


# Some 8 kB each.
_PAGE = 500


async def read_cluster(
    client: Client, namespace: str, *, warn: Callable[[str], None] = lambda _: None
) -> list[Record]:
    """The records of a namespace; empty: of all.

    Without the right to list Secrets there are only the Certificates, with the dates of their status; `warn`
    gets a sentence that names the missing right. Raises `ApiError` if Certificates cannot be listed.
    """
    certificates = (await client.list(related.CERTIFICATES, namespace, limit=_PAGE)).items
    secrets = {
        (secret.metadata.namespace, secret.metadata.name): secret
        for secret in await _secrets(client, namespace, warn)
    }
    records = []
    for certificate in certificates:
        place = (certificate["metadata"]["namespace"], (certificate.get("spec") or {}).get("secretName", ""))
        records.append(_of_certificate(certificate, secrets.pop(place, None)))
    return [*records, *(of_secret(secret) for secret in secrets.values())]


async def _secrets(client: Client, namespace: str, warn: Callable[[str], None]) -> list[Secret]:
    """The Secrets of types with certificates; Secrets of other types are not transferred."""
    try:
        listed = [
            await client.list(SECRETS, namespace, fields=f"type={kind}", limit=_PAGE)
            for kind in (names.TLS_SECRET_TYPE, "Opaque")
        ]
    except Forbidden as error:
        warn(f"Secrets are left out: {sentence(str(error))}")
    except ApiError as error:
        warn(f"Secrets cannot be listed: {sentence(str(error))}")
    else:
        tls, opaque = (listing.items for listing in listed)
        return [*tls, *(secret for secret in opaque if names.TLS_CERT_KEY in secret.data)]
    return []


def _of_certificate(certificate: related.Json, secret: Secret | None) -> Record:
    meta, status = certificate["metadata"], certificate.get("status") or {}
    reference = issuer_ref(certificate)
    record = Record(
        source=Source.CERTIFICATE,
        namespace=meta["namespace"],
        name=meta["name"],
        issuer=f"{reference['kind']}/{reference['name']}",
        names=tuple(map(str, (certificate.get("spec") or {}).get("dnsNames") or ())),
        not_before=parse_time(status.get("notBefore")),
        not_after=parse_time(status.get("notAfter")),
        renewal_time=parse_time(status.get("renewalTime")),
    )
    return record if secret is None else _with_content(record, secret)


def of_secret(secret: Secret) -> Record:
    meta = secret.metadata
    return _with_content(Record(source=Source.SECRET, namespace=meta.namespace, name=meta.name), secret)


def _with_content(record: Record, secret: Secret) -> Record:
    content = secret.data.get(names.TLS_CERT_KEY, b"")
    if not content:
        return replace(record, problem=_problem(secret, "the entry is missing"))
    try:
        return record.with_facts(read_certificate(content))
    except PkiError as error:
        return replace(record, problem=_problem(secret, str(error)))


def _problem(secret: Secret, reason: str) -> str:
    meta = secret.metadata
    return f"{names.TLS_CERT_KEY} of Secret {meta.namespace}/{meta.name}: {reason}"


class Source(StrEnum):
    """Where a record was read."""

    CERTIFICATE = "Certificate"
    SECRET = "Secret"  # noqa: S105 - a kind
    FILE = "File"
    HOST = "Host"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate at one place.

    `name`: of the object, the path of the file, or the address of the host. `issuer`: the issuer's kind and
    name for a Certificate, otherwise the issuer's name in the certificate. `served_at`: the scanned hosts
    that present the certificate, and the files that contain it. `problem`: why it cannot be read, or that the
    host presents another certificate than the server has for the name.
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
        """The record, completed from the certificate; a known issuer stays."""
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
    """The subjects of the certificate: its alternative names, else its subject."""
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


def compared(
    hosts: Sequence[Record], addresses: Sequence[TlsAddress], known: Sequence[Record]
) -> list[Record]:
    """The hosts, in the order of their `addresses`. A host that presents another certificate than the server
    has for its name gets a `problem`.

    The name is the name that the client requested (SNI, or the host). If the server has no certificate for
    it, e.g. for an address without a name, the names of the presented certificate count.
    """
    return [
        record if record.problem else replace(record, problem=_difference(record, address, known))
        for record, address in zip(hosts, dict.fromkeys(addresses), strict=True)
    ]


def _difference(record: Record, address: TlsAddress, known: Sequence[Record]) -> str:
    # A wildcard stands for one label (RFC 6125 §6.4.3).
    name = (address.server_name or address.host).lower()
    covering = {name, f"*.{name.partition('.')[2]}"}
    wanted = [entry for entry in known if covering & set(entry.names)]
    wanted = wanted or [entry for entry in known if set(entry.names) & set(record.names)]
    wanted = [entry for entry in wanted if entry.not_after is not None]
    if not wanted or any(_is_same(record, entry) for entry in wanted):
        return ""
    # A Certificate before the Secret of another program, and the newest.
    newest = max(wanted, key=lambda entry: (entry.source == Source.CERTIFICATE, _begin(entry)))
    shares_names = bool(set(newest.names) & set(record.names))
    is_older = shares_names and _begin(record) < _begin(newest)
    what = "an older" if is_older else "another"
    return f"{record.name} serves {what} certificate than {newest.place}; reload the server"


def _begin(record: Record) -> tuple[datetime, ...]:
    """The sort key of certificates of one name."""
    return tuple(moment for moment in (record.not_before, record.not_after) if moment is not None)


def _is_same(one: Record, other: Record) -> bool:
    if one.fingerprint and other.fingerprint:
        return one.fingerprint == other.fingerprint
    return (one.not_before, one.not_after) == (other.not_before, other.not_after)


def soonest_first(records: Iterable[Record], now: datetime, within: timedelta | None) -> list[Record]:
    """The records by expiry, records without a date last. `within`: only records that end in that time."""
    chosen = [
        record
        for record in records
        if within is None or (record.not_after is not None and record.not_after - now <= within)
    ]
    return sorted(
        chosen, key=lambda record: (record.not_after is None, record.not_after or now, record.place)
    )
