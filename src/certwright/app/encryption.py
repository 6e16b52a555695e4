"""Encryption at rest: which rows are encrypted, and where the key-encryption keys come from."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

from certwright.app import shared_files
from certwright.app.options import ServeOptions
from certwright.kube.store.envelope import Seal
from certwright.kube.store.keyring import KEY_BYTES, WrappingKeys, WrongKey
from certwright.kube.util.files import write_atomically

VARIABLE = "CERTWRIGHT_ENCRYPTION_KEY"
FILE_NAME = "encryption.key"

BUCKETS = ("secrets", shared_files.KEY.bucket)
"""Encrypted rows: Secrets, and the keys that servers on one store share."""

_HEAD = """\
# certwright's key for the Secrets in its store (AES-256, base64). Without it they cannot be read: keep a
# copy, apart from backups. The first key is used; others may stand below it while it is being replaced.
"""


def new_seal(options: ServeOptions) -> Seal:
    """The envelope encryption of rows."""
    return Seal(BUCKETS, wrapping_keys(options, os.environ), enabled=options.encrypt_secrets)


def wrapping_keys(options: ServeOptions, environment: Mapping[str, str]) -> WrappingKeys:
    """The source of the wrapping keys: the file that the options name, else the environment, else a file in
    the data directory."""
    if options.encryption_key_file is None and (text := environment.get(VARIABLE)):
        return KeyVariable(text)
    return KeyFile(options.encryption_key_file or options.data_dir / FILE_NAME)


class KeyFile:
    """Keys in a file, one per line, the newest first (`keyring.WrappingKeys`)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def source(self) -> str:
        """The path."""
        return str(self._path)

    def load(self) -> tuple[bytes, ...]:
        """The keys in the file; none if it is missing. Raises `WrongKey`."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise WrongKey(f"the key file {self._path} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise WrongKey(f"the key file {self._path} holds something that is not text") from error
        return _parse(text.splitlines(), self.source)

    def make(self) -> None:
        """Prepend a new key. Raises `WrongKey`."""
        self._write((os.urandom(KEY_BYTES), *self.load()))

    def keep_first(self) -> None:
        """Remove all keys but the first. Raises `WrongKey`."""
        self._write(self.load()[:1])

    def _write(self, keys: tuple[bytes, ...]) -> None:
        lines = "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
        try:
            write_atomically(self._path, (_HEAD + lines).encode())
        except OSError as error:
            raise WrongKey(f"the key file {self._path} cannot be written ({error.strerror})") from error


class KeyVariable:
    """Keys in the environment variable, comma-separated, the newest first (`keyring.WrappingKeys`)."""

    source = f"${VARIABLE}"

    def __init__(self, text: str) -> None:
        self._text = text

    def load(self) -> tuple[bytes, ...]:
        """The keys in the variable. Raises `WrongKey`."""
        return _parse(self._text.split(","), self.source)

    def make(self) -> None:
        """Always raises `WrongKey`, because a variable cannot be written."""
        raise WrongKey(
            f"a new key cannot be put into {self.source}: put it there, before the old one and a comma, and"
            " start the server again"
        )

    def keep_first(self) -> None:
        """Does nothing: `make` has refused."""


def _parse(lines: list[str], source: str) -> tuple[bytes, ...]:
    keys = []
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        try:
            key = base64.b64decode(line, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise WrongKey(
                f"{source} holds something else than keys of {KEY_BYTES} bytes in base64, as"
                " `openssl rand -base64 32` makes them"
            )
        keys.append(key)
    return tuple(keys)
