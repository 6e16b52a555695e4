"""The files of one Certificate on this machine, for `certwright export`: the checks of the directory, the
files (the same as a Delivery's), the command after a change, and the check of what servers serve.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

from certwright.cli import lazy
from certwright.cli.errors import Failed
from certwright.controllers.deliveries.outputs import make_files, outputs_of, read_source
from certwright.controllers.deliveries.permissions import NOT_ISSUED, Refused
from certwright.diagnosis.words import at
from certwright.kit.hooks import HookError, run_hook
from certwright.kit.versioned_files import (
    File,
    ForeignFile,
    Read,
    VersionedFolder,
    Written,
    open_below,
    reserve,
)
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import ObjectKey
from certwright.pki.certificates import CertificateFacts
from certwright.resources.delivery import HAVE_KEY, HAVE_PASSWORD, DeliveryOutput, DeliverySpec, Format
from certwright.resources.names import CERTIFICATE_NAME

PEM: Final = "pem"
"""The format of a Delivery without outputs: tls.crt, tls.key and ca.crt."""
FORMATS: Final = {
    "combined": DeliveryOutput(name="tls-combined.pem", format=Format.COMBINED),
    "pkcs12": DeliveryOutput(name="keystore.p12", format=Format.PKCS12),
    "jks": DeliveryOutput(name="keystore.jks", format=Format.JKS),
}
"""The file of each other format; names as in the Secrets of Certificates with these formats."""
NEED_PASSWORD: Final = frozenset(name for name, output in FORMATS.items() if output.format in HAVE_PASSWORD)
_CHECK_TIMEOUT_S: Final = 10.0
# Written by others, a directory could contain a predecessor of tls.key that belongs to them.
_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Status(IntEnum):
    """Exit statuses of `certwright export`."""

    FAILED = 1
    NOT_ISSUED = 3
    UNREACHABLE = 4
    REJECTED = 5
    NOT_WRITTEN = 6
    COMMAND_FAILED = 7
    NOT_SERVED = 8


class Problem(Failed):
    """The export has failed for now; the text is one sentence."""

    def __init__(self, status: Status, sentence: str) -> None:
        super().__init__(sentence)
        # An instance's, although click declares it for the class.
        self.__dict__["exit_code"] = int(status)


class CopySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is written where. `formats` are `pem` and keys of `FORMATS`; `password` is that of key stores;
    `command` runs after a change (empty: none); `served_at` is checked afterwards."""

    directory: Path
    formats: Sequence[str] = (PEM,)
    password: str = ""
    command: str = ""
    command_timeout_s: float
    served_at: Sequence[lazy.tls_scan.TlsAddress] = ()


class LocalCopy:
    """The files of one Certificate in a directory of this machine. `open` it first."""

    def __init__(self, key: ObjectKey, settings: CopySettings) -> None:
        self.key, self._settings = key, settings
        directory = Path(os.path.abspath(settings.directory))
        self._directory = directory
        below = next(folder for folder in directory.parents if folder.is_dir())
        # The directory itself is opened below its parent, so that it cannot become a link later.
        self._folder = VersionedFolder(str(below), directory.relative_to(below).parts)
        self._written: Written | None = None
        self._names: Sequence[str] = ()
        self._version = ""
        self._reserved: int | None = None

    def open(self) -> None:
        """Create the directory, and reserve it for this process. Raises `Problem`."""
        self._check_directory()
        try:
            with open_below(self._folder.root, self._folder.parts, create=True):
                pass
            if not os.access(self._directory, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(self._directory))
            self._reserved = reserve(self._directory)
        except BlockingIOError:
            raise _not_written(
                f"another certwright writes to {self._directory}; stop it, or choose another directory"
            ) from None
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Let other processes write to the directory."""
        if self._reserved is not None:
            os.close(self._reserved)
            self._reserved = None

    async def write(self, secret: Secret, revision: str) -> str:
        """Make the files those of the Secret; a sentence about what has changed, empty if nothing has.
        Raises `Problem`."""
        owner = secret.metadata.annotations.get(CERTIFICATE_NAME, self.key.name)
        if owner != self.key.name:
            raise Problem(
                Status.FAILED,
                f"Secret {secret.metadata.name} has the certificate of {owner}, not of {self.key.name}: both "
                "name this Secret; change spec.secretName of one of them",
            )
        if (
            self._version == revision
            and self._written is not None
            and await asyncio.to_thread(self._folder.sign, self._names) == self._written.signature
        ):
            return ""
        try:
            return await asyncio.to_thread(self._write, secret, revision)
        except Refused as refusal:
            status = Status.NOT_ISSUED if refusal.reason == NOT_ISSUED else Status.FAILED
            raise Problem(status, refusal.message) from None

    async def run_command(self) -> bool:
        """Run the command, unless it has succeeded for these files; returns whether it has run. Raises
        `Problem`."""
        written, command = self._written, self._settings.command
        if not command or written is None or written.is_hook_done:
            return False
        variables = {"CERTWRIGHT_CERTIFICATE": str(self.key), "CERTWRIGHT_DIR": str(self._directory)}
        try:
            await run_hook(command, variables, timeout_s=self._settings.command_timeout_s)
            await asyncio.to_thread(self._folder.mark_hook_done, written.version)
        except (HookError, OSError) as error:
            raise Problem(
                Status.COMMAND_FAILED,
                f"the files in {self._directory} are current, but the command of --on-change failed: {error}",
            ) from error
        self._written = msgspec.structs.replace(written, is_hook_done=True)
        return True

    async def check_served(self) -> None:
        """Compare what the addresses serve with the certificate. Raises `Problem`."""
        results = await asyncio.gather(*map(self._check, self._settings.served_at))
        if problems := list(filter(None, results)):
            raise Problem(Status.NOT_SERVED, f"the files are current, but {'; '.join(problems)}")

    async def _check(self, address: lazy.tls_scan.TlsAddress) -> str:
        try:
            der = await lazy.tls_scan.presented_certificate(address, timeout_s=_CHECK_TIMEOUT_S)
        except lazy.tls_scan.ScanFailed as error:
            return str(error)
        return "" if der == self._certificate.der else f"{address} serves another certificate"

    def _write(self, secret: Secret, revision: str) -> str:
        settings = self._settings
        source = read_source(secret, {output.name: settings.password for output in FORMATS.values()})
        outputs = [FORMATS[form] for form in settings.formats if form != PEM]
        if PEM in settings.formats:
            outputs[:0] = outputs_of(DeliverySpec(root="", path=""), source)
        if source.certificate.is_ca and any(output.format in HAVE_KEY for output in outputs):
            raise Problem(
                Status.FAILED,
                f"{self.key} is a CA, whose private key is not exported; --format pem writes its certificate",
            )

        def make(read: Read) -> Mapping[str, File]:
            return make_files(outputs, source, read, datetime.now(UTC))

        self._check_directory()
        try:
            self._written = self._folder.write(make)
        except ForeignFile as name:
            raise _not_written(
                f"{self._directory / str(name)} exists and was not written by `certwright export`; remove "
                "it, or choose another directory"
            ) from None
        except OSError as error:
            raise self._failed(error) from error
        self._version, self._names = revision, [output.name for output in outputs]
        self._certificate: CertificateFacts = source.certificate
        if not self._written.changed:
            return ""
        files, until = ", ".join(self._written.changed), at(source.certificate.not_after)
        return f"{self.key}: {files} written to {self._directory}; valid until {until}"

    @property
    def is_written(self) -> bool:
        """Whether the files have been written, or were found to be current."""
        return self._written is not None

    @property
    def summary(self) -> str:
        """A sentence about the present files."""
        until = at(self._certificate.not_after)
        return f"{self.key}: the files in {self._directory} are current; valid until {until}"

    def _check_directory(self) -> None:
        """Raises `Problem` for a directory that other users control, and so could take the key from."""
        for path in (self._directory, *self._directory.parents):
            try:
                status = path.lstat()
            except OSError:
                continue
            is_ours = status.st_uid in (0, os.geteuid())
            if stat.S_ISLNK(status.st_mode) and (path == self._directory or not is_ours):
                whose = "" if is_ours else f" of user {_user(status.st_uid)}"
                raise _not_written(
                    f"{path} is a symbolic link{whose}, and links are not followed; name the directory: "
                    f"--to {os.path.realpath(self._directory)}"
                )
            if path != self._directory:
                continue
            if not stat.S_ISDIR(status.st_mode):
                raise _not_written(f"{path} is not a directory; name one with --to")
            if not is_ours:
                user = _user(status.st_uid)
                raise _not_written(
                    f"{path} belongs to user {user}, who could take the private key; run the command as "
                    f"{user}, or choose a directory of your own with --to"
                )
            if self._others_write(status):
                raise _not_written(
                    f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):04o}) and could "
                    f"take the private key; chmod go-w {path}, or name a directory below it with --to"
                )

    @staticmethod
    def _others_write(status: os.stat_result) -> bool:
        # The group of one user alone, in which many systems put directories.
        is_own_group = status.st_gid in (0, os.getegid())
        return bool(status.st_mode & (stat.S_IWOTH if is_own_group else _WRITERS))

    def _failed(self, error: OSError) -> Problem:
        where = error.filename if error.filename and os.path.isabs(str(error.filename)) else self._directory
        hint = ""
        if isinstance(error, PermissionError):
            hint = "; run the command as a user who may write there, or choose another directory with --to"
        return _not_written(f"{where} cannot be written: {error.strerror or error}{hint}")


def _not_written(sentence: str) -> Problem:
    return Problem(Status.NOT_WRITTEN, sentence)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
