"""Export of Secrets as files: `DIR/<namespace>/<certificate>/<key>`, the files of a certificate replaced
together (`kit/versioned_files.py`).

Only the owner can read new files other than certificates (`*.crt`), because they are or may contain key
material. Mode, owner and group of a file are kept when it is replaced. The private key of a CA is not
exported, unless the operator requests it. The files of a deleted Secret stay: servers can use them until the
next Secret exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from certwright.kit.versioned_files import File, VersionedFolder
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.files import AlreadyLocked, FileLock
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.pki.keys import load_private_key, public_key_der

# RFC 1123 subdomains: names that the API server accepts. Other names never become a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Kubernetes' `IsConfigMapKey`, without a leading dot, so that no file is hidden and `..` is impossible.
_KEY = re.compile(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,252}")
_KEY_FILES = frozenset(("tls.key", "key.der", "tls-combined.pem", "keystore.jks", "keystore.p12"))
"""The keys of a certificate's Secret that contain the private key."""
# The possible keys of a certificate's Secret: only files of these are removed.
_KNOWN = _KEY_FILES | {"tls.crt", "ca.crt", "truststore.jks", "truststore.p12"}
_LOCK = ".certwright.lock"


class UnsafeName(ValueError):
    """A namespace, certificate or key that must not become part of a path; the text is one sentence."""


class ExportInUse(Exception):
    """Another process exports to this directory; the text is one sentence."""


def folder_of(root: Path, namespace: str, certificate: str) -> Path:
    """The folder of a certificate's files. Raises `UnsafeName`."""
    for what, name in (("namespace", namespace), ("certificate", certificate)):
        if not _NAME.fullmatch(name):
            raise UnsafeName(f"{what} {name!r} is not exported: it is not a DNS-1123 name")
    return root / namespace / certificate


def pair_problem(data: Mapping[str, bytes]) -> str:
    """Why no server could use `tls.crt` with `tls.key`, in one phrase; empty: a server can."""
    name = "tls.crt"
    try:
        certificate = read_certificate(data.get(name, b""))
        name = "tls.key"
        if not data.get(name):
            return "there is no tls.key"
        if public_key_der(load_private_key(data[name])) != certificate.public_key_der:
            return "tls.key is not the private key of tls.crt"
    except PkiError as error:
        return f"{name} cannot be read: {error}"
    return ""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a certificate's folder: the names of the files that were changed now, whether a CA's
    private key was among the removed ones, the version of the files, and whether the hook has succeeded for
    it."""

    changed: Sequence[str]
    removed_ca_key: bool
    version: str
    is_done: bool


class Exporter:
    """Synchronizes folders with their Secrets. Does blocking file I/O: call it in a thread."""

    def __init__(self, root: Path, *, with_ca_keys: bool = False) -> None:
        self.root = root
        self._with_ca_keys = with_ca_keys
        self._names: dict[ObjectKey, frozenset[str]] = {}
        self._signatures: dict[ObjectKey, tuple[object, ...]] = {}
        self._lock: FileLock | None = None

    def lock(self) -> None:
        """Create the directory, and reserve it for this process. Raises `ExportInUse` and `OSError`."""
        if self._lock is not None:
            return
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.root / _LOCK, holder=f"process {os.getpid()}")
        try:
            lock.acquire()
        except AlreadyLocked as error:
            raise ExportInUse(
                f"{self.root} is the export directory of another certwright ({error.holder or 'unknown'}); "
                "stop that one, or choose another directory with --export"
            ) from error
        self._lock = lock

    def release(self) -> None:
        """Let other processes export to the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def write(self, namespace: str, certificate: str, data: Mapping[str, bytes]) -> Exported:
        """Update one certificate's folder.

        Raises `UnsafeName` before anything is written, and `OSError`.
        """
        key, path = ObjectKey(namespace, certificate), folder_of(self.root, namespace, certificate)
        for name in data:
            if not _KEY.fullmatch(name):
                raise UnsafeName(
                    f"key {name!r} of {namespace}/{certificate} is not exported: not a file name"
                )
        withheld = frozenset() if self._with_ca_keys or not _is_ca(data) else _KEY_FILES
        files = {
            name: File(content=content, is_private=not name.endswith(".crt"))
            for name, content in data.items()
            if name not in withheld
        }
        try:
            written = self._folder(key).write(
                lambda _read: files,
                obsolete=_KNOWN | self._names.get(key, frozenset()),
                replaces_foreign=True,
            )
        except OSError as error:
            # The names in the folder are relative to its descriptor.
            where = error.filename if error.filename and os.path.isabs(error.filename) else str(path)
            raise OSError(error.errno, error.strerror, where) from error
        self._names[key] = frozenset(files)
        self._signatures[key] = written.signature
        return Exported(
            changed=written.changed,
            removed_ca_key=not withheld.isdisjoint(written.changed),
            version=written.version,
            is_done=written.is_done,
        )

    def mark_done(self, namespace: str, certificate: str, version: str) -> None:
        """Record that the hook has succeeded for this version. Raises `OSError`."""
        self._folder(ObjectKey(namespace, certificate)).mark_done(version)

    def forget(self, key: ObjectKey) -> None:
        """Leave the files of a deleted Certificate as they are."""
        self._signatures.pop(key, None)

    def changed_by_others(self) -> list[ObjectKey]:
        """The certificates whose files were changed or deleted since they were written."""
        signatures = dict(self._signatures)  # `write` may run in another thread.
        return [
            key for key, signed in signatures.items() if self._folder(key).sign(self._names[key]) != signed
        ]

    def names(self, namespace: str, certificate: str) -> list[str]:
        """The names of the files written to one certificate's folder."""
        return sorted(self._names.get(ObjectKey(namespace, certificate), ()))

    def _folder(self, key: ObjectKey) -> VersionedFolder:
        return VersionedFolder(str(self.root), key)


def _is_ca(data: Mapping[str, bytes]) -> bool:
    try:
        return read_certificate(data.get("tls.crt", b"")).is_ca
    except PkiError:
        return False
