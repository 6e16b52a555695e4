"""Secrets as files: `DIR/<namespace>/<certificate>/<key>`, each replaced whole or not at all.

Everything but certificates (`*.crt`) is readable by its owner only, since it is or may hold key material. A
Secret that is deleted leaves its files alone: whoever serves with them can go on until the next one comes.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from certwright.kube.util.files import PRIVATE, PUBLIC, write_atomically

# RFC 1123 subdomains: what the API server accepts as a name. A name of another kind never becomes a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Kubernetes' `IsConfigMapKey`, and no dot in front, so that no file is hidden and `..` is no way up.
_KEY = re.compile(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,252}")
# What a certificate's Secret may hold; of these, files that have no key any more are removed.
_KNOWN = frozenset(
    (
        *("tls.crt", "tls.key", "ca.crt", "key.der", "tls-combined.pem"),
        *("keystore.jks", "truststore.jks", "keystore.p12", "truststore.p12"),
    )
)


class UnsafeName(ValueError):
    """A namespace, certificate or key that must not become part of a path; the text is one sentence."""


def folder_of(root: Path, namespace: str, certificate: str) -> Path:
    """Where a certificate's files go. Raises `UnsafeName`."""
    for what, name in (("namespace", namespace), ("certificate", certificate)):
        if not _NAME.fullmatch(name):
            raise UnsafeName(f"{what} {name!r} is not exported: it is not a DNS-1123 name")
    return root / namespace / certificate


class Exporter:
    """Keeps folders as their Secrets are. Does blocking file work: call it in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[Path, set[str]] = {}

    def write(self, namespace: str, certificate: str, data: Mapping[str, bytes]) -> list[str]:
        """Bring one certificate's folder up to date, and return the names of the files that changed.

        Raises `UnsafeName` before anything is written, and `OSError`.
        """
        folder = folder_of(self.root, namespace, certificate)
        for key in data:
            if not _KEY.fullmatch(key):
                raise UnsafeName(f"key {key!r} of {namespace}/{certificate} is not exported: not a file name")
        folder.mkdir(parents=True, exist_ok=True)
        # The key goes first: a server that loads both when the certificate changes finds the new pair.
        order = sorted(data, key=lambda key: (key.endswith(".crt"), key))
        changed = [key for key in order if _replace(folder / key, data[key])]
        gone = (_KNOWN | self._written.get(folder, set())) - set(data)
        changed += [key for key in sorted(gone) if _remove(folder / key)]
        self._written[folder] = set(data)
        return changed

    def names(self, folder: Path) -> list[str]:
        """The names of the files written to one certificate's folder."""
        return sorted(self._written.get(folder, ()))


def _replace(path: Path, content: bytes) -> bool:
    mode = PUBLIC if path.suffix == ".crt" else PRIVATE
    if _is(path, content, mode):
        return False
    write_atomically(path, content, mode=mode)
    return True


def _is(path: Path, content: bytes, mode: int) -> bool:
    try:
        status = path.lstat()
        return (
            stat.S_ISREG(status.st_mode)
            and stat.S_IMODE(status.st_mode) == mode
            and path.read_bytes() == content
        )
    except OSError:
        return False


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
