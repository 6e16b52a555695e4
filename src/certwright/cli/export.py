"""Export of Secrets as files: `DIR/<namespace>/<certificate>/<key>`, each replaced atomically.

Only the owner can read files other than certificates (`*.crt`), because they are or may contain key material.
The files of a deleted Secret stay: servers can use them until the next Secret exists.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from certwright.kube.util.files import PRIVATE, PUBLIC, write_atomically

# RFC 1123 subdomains: names that the API server accepts. Other names never become a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Kubernetes' `IsConfigMapKey`, without a leading dot, so that no file is hidden and `..` is impossible.
_KEY = re.compile(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,252}")
# The possible keys of a certificate's Secret: only files of these are removed.
_KNOWN = frozenset(
    (
        *("tls.crt", "tls.key", "ca.crt", "key.der", "tls-combined.pem"),
        *("keystore.jks", "truststore.jks", "keystore.p12", "truststore.p12"),
    )
)


class UnsafeName(ValueError):
    """A namespace, certificate or key that must not become part of a path; the text is one sentence."""


def folder_of(root: Path, namespace: str, certificate: str) -> Path:
    """The folder of a certificate's files. Raises `UnsafeName`."""
    for what, name in (("namespace", namespace), ("certificate", certificate)):
        if not _NAME.fullmatch(name):
            raise UnsafeName(f"{what} {name!r} is not exported: it is not a DNS-1123 name")
    return root / namespace / certificate


class Exporter:
    """Synchronizes folders with their Secrets. Does blocking file I/O: call it in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._written: dict[Path, set[str]] = {}

    def write(self, namespace: str, certificate: str, data: Mapping[str, bytes]) -> list[str]:
        """Update one certificate's folder, and return the names of the changed files.

        Raises `UnsafeName` before anything is written, and `OSError`.
        """
        folder = folder_of(self.root, namespace, certificate)
        for key in data:
            if not _KEY.fullmatch(key):
                raise UnsafeName(f"key {key!r} of {namespace}/{certificate} is not exported: not a file name")
        folder.mkdir(parents=True, exist_ok=True)
        # The key is written first: a server that reloads both when the certificate changes gets the new pair.
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
