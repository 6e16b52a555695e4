"""Where certificates are looked for: files of this machine, TLS servers, Secrets of a cluster."""

from __future__ import annotations

import asyncio
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from certwright.cli import related
from certwright.cli.diagnosis import issuer_ref
from certwright.cli.errors import report_warning
from certwright.cli.format import parse_time, sentence
from certwright.cli.inventory.records import Record, Source
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import ApiError, Forbidden
from certwright.kube.client.rest import Client
from certwright.kube.util.encoding import in_words
from certwright.pki.certificates import CertificateFacts, read_certificate, read_der
from certwright.pki.errors import PkiError
from certwright.pki.pem import certificates_in
from certwright.resources import names

_LARGEST: Final = 4 * 2**20
"""Bytes. All CA certificates of a system are about 250 kB."""


@dataclass(slots=True)
class FileInventory:
    """The records of files, and what could not be read, as clauses with the file."""

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_files(patterns: Sequence[str]) -> FileInventory:
    """Read the files, folders and patterns (`/etc/nginx/*.pem`, `**` included).

    In a folder, at any depth, whatever is not a certificate is skipped; links to folders are not followed. A
    file that is named must be one. The first certificate of each file counts. Files with the same certificate
    are one record, with the first path.
    """
    inventory = FileInventory()
    by_fingerprint: dict[str, Record] = {}
    for pattern in patterns:
        paths = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        if not paths:
            inventory.problems.append(f"{pattern}: there is no such file")
        for path in paths:
            for record in _records(Path(path), inventory.problems, is_named=path == pattern):
                first = by_fingerprint.get(record.fingerprint)
                if first is None:
                    by_fingerprint[record.fingerprint] = record
                elif record.name != first.name and record.name not in first.served_at:
                    others = (*first.served_at, record.name)
                    by_fingerprint[record.fingerprint] = replace(first, served_at=others)
    inventory.records.extend(by_fingerprint.values())
    return inventory


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
        content = _content(path)
        facts = None if content is None else _first_certificate(content)
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


def _content(path: Path) -> bytes | None:
    """None for what is no regular file (reading a pipe would wait for ever), or too large."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        return None
    return path.read_bytes()


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
            return await _scan(address, timeout_s)

    return list(await asyncio.gather(*map(scan, dict.fromkeys(addresses))))


async def _scan(address: TlsAddress, timeout_s: float) -> Record:
    record = Record(source=Source.HOST, name=str(address))
    try:
        der = await presented_certificate(address, timeout_s=timeout_s)
        return record.with_facts(read_der(der))
    except ScanFailed as error:
        return replace(record, problem=str(error))
    except PkiError as error:
        return replace(record, problem=f"{address} presents what cannot be read: {error}")


# Some 8 kB each.
_PAGE = 500


async def read_cluster(client: Client, namespace: str) -> list[Record]:
    """The records of that namespace, of all if it is empty.

    Without the right to list Secrets there are only the Certificates, by the dates in their status; a warning
    names what is missing. Raises `ApiError` if Certificates cannot be listed.
    """
    certificates = (await client.list(related.CERTIFICATES, namespace, limit=_PAGE)).items
    secrets = {
        (secret.metadata.namespace, secret.metadata.name): secret
        for secret in await _secrets(client, namespace)
    }
    records = []
    for certificate in certificates:
        place = (certificate["metadata"]["namespace"], (certificate.get("spec") or {}).get("secretName", ""))
        records.append(_of_certificate(certificate, secrets.pop(place, None)))
    return [*records, *(_of_secret(secret) for secret in secrets.values())]


async def _secrets(client: Client, namespace: str) -> list[Secret]:
    """Those of the types in which programs keep certificates; others are not even transferred."""
    try:
        listed = [
            await client.list(SECRETS, namespace, fields=f"type={kind}", limit=_PAGE)
            for kind in (names.TLS_SECRET_TYPE, "Opaque")
        ]
    except Forbidden as error:
        report_warning(f"Secrets are left out: {sentence(str(error))}")
    except ApiError as error:
        report_warning(f"Secrets cannot be listed: {sentence(str(error))}")
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


def _of_secret(secret: Secret) -> Record:
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
