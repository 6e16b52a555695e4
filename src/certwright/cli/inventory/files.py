"""The certificates in files of this machine."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from certwright.cli.inventory.records import Record, Source
from certwright.kube.util.encoding import in_words
from certwright.pki.certificates import CertificateFacts, read_certificate, read_der
from certwright.pki.errors import PkiError
from certwright.pki.pem import certificates_in

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

    for folder, subfolders, names in os.walk(path, onerror=report):
        # The versions of an export or a Kubernetes volume; links beside them name the current one.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".."))
        for name in sorted(names):
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
