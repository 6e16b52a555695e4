"""The key stores of `spec.keystores`: their passwords, encoding and verification.

A key store contains salt, so its bytes are never the same twice. An existing key store is kept as long as it
opens with the password and has the right content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from certwright.controllers.certificates.draft import Blocked
from certwright.controllers.certificates.target import Pair
from certwright.kube.api.core import Secret
from certwright.kube.util.caches import Lru
from certwright.pki import keystores, limits
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.certificate import CertificateSpec, JKSKeystore, PKCS12Keystore
from certwright.resources.references import given

PASSWORD_NOT_FOUND: Final = "KeystorePasswordSecretNotFound"  # noqa: S105 - a name, no password
FAILED: Final = "KeystoreFailed"


class Files(NamedTuple):
    """The keys of the Secret that a key store and its trust store lie under."""

    keystore: str
    truststore: str


JKS: Final = Files(names.JKS_KEYSTORE_KEY, names.JKS_TRUSTSTORE_KEY)
PKCS12: Final = Files(names.PKCS12_KEYSTORE_KEY, names.PKCS12_TRUSTSTORE_KEY)


@dataclass(frozen=True, slots=True)
class Store:
    """One requested key store; `form` is the alias of a JKS or the profile of a PKCS#12 file."""

    files: Files
    password: str = field(repr=False)
    form: str


class Desired(msgspec.Struct, frozen=True):
    """The key stores to make, and the files that cannot be made, each with the reason."""

    stores: tuple[Store, ...] = ()
    missing: Mapping[Files, Blocked] = msgspec.field(default_factory=dict)


NOTHING: Final = Desired()


def password_secrets(spec: CertificateSpec) -> tuple[str, ...]:
    """The names of the Secrets that passwords are taken from."""
    refs = (given(store.password_secret_ref) for store in _requested(spec))
    return tuple(ref.name for ref in refs if ref is not None)


def desired(spec: CertificateSpec, secrets: Mapping[str, Secret]) -> Desired:
    """The key stores of the spec; `secrets` are the existing Secrets among `password_secrets`."""
    stores: list[Store] = []
    missing: dict[Files, Blocked] = {}
    for asked in _requested(spec):
        files = JKS if isinstance(asked, JKSKeystore) else PKCS12
        form = asked.alias_or_default if isinstance(asked, JKSKeystore) else asked.profile_or_default
        try:
            stores.append(Store(files, _password(asked, secrets), form))
        except Blocked as blocked:
            missing[files] = blocked
    return Desired(tuple(stores), missing)


def _requested(spec: CertificateSpec) -> list[JKSKeystore | PKCS12Keystore]:
    if spec.keystores is None:
        return []
    both = (spec.keystores.jks, spec.keystores.pkcs12)
    return [store for store in both if store is not None and store.create]


def _password(store: JKSKeystore | PKCS12Keystore, secrets: Mapping[str, Secret]) -> str:
    reference = given(store.password_secret_ref)
    if reference is None:
        return _limited(store.password or "")
    secret = secrets.get(reference.name)
    value = secret.data.get(reference.key) if secret is not None else None
    if not value:
        lacks = f'has nothing under "{reference.key}"' if secret is not None else "does not exist"
        text = f'The keystore is waiting for its password: Secret "{reference.name}" {lacks}'
        raise Blocked(PASSWORD_NOT_FOUND, text)
    try:
        return _limited(value.decode())
    except UnicodeDecodeError:
        where = f'{reference.key} of Secret "{reference.name}"'
        raise Blocked(FAILED, f"The keystore's password in {where} is not UTF-8 text") from None


def _limited(password: str) -> str:
    if len(password) > limits.MAX_PASSWORD:
        raise Blocked(FAILED, f"The keystore's password has more than {limits.MAX_PASSWORD} characters")
    return password


def make(stores: Iterable[Store], pair: Pair, now: datetime) -> dict[str, bytes]:
    """The files; takes 1 to 15 ms each. Raises `Blocked` where one cannot be made."""
    files: dict[str, bytes] = {}
    for store in stores:
        contents = _contents(store, pair)
        try:
            if store.files is JKS:
                made, trust = keystores.jks_files(contents, alias=store.form, now=now)
            else:
                made, trust = keystores.pkcs12_files(contents, profile=store.form)
        except (PkiError, ValueError) as error:
            raise Blocked(FAILED, f"{store.files.keystore} cannot be made: {error}") from error
        files[store.files.keystore] = made
        if trust is not None:
            files[store.files.truststore] = trust
    return files


def _contents(store: Store, pair: Pair) -> keystores.Contents:
    return keystores.Contents(pair.key_pem, pair.chain_pem, pair.ca_pem, store.password)


def fits(store: Store, pair: Pair, data: Mapping[str, bytes]) -> bool:
    """Whether the existing files open with the password and contain the pair; takes 0.1 to 30 ms."""
    made, trust = data.get(store.files.keystore, b""), data.get(store.files.truststore)
    contents = _contents(store, pair)
    if store.files is JKS:
        return keystores.jks_fits(made, trust, contents, alias=store.form)
    return keystores.pkcs12_fits(made, trust, contents, profile=store.form)


class Verdicts:
    """A memo, by their bytes, of whether files were as requested."""

    def __init__(self) -> None:
        self._known: Lru[bytes, bool] = Lru(2048)

    def known(self, store: Store, pair: Pair, data: Mapping[str, bytes]) -> bool | None:
        """The verdict, if it was reached before; None: call `fits`, which takes milliseconds."""
        return self._known.get(_digest(store, pair, data))

    def remember(self, store: Store, pair: Pair, data: Mapping[str, bytes], *, fits: bool) -> None:
        """Keep a verdict."""
        self._known.put(_digest(store, pair, data), fits)


def _digest(store: Store, pair: Pair, data: Mapping[str, bytes]) -> bytes:
    """A digest of what the verdict depends on, so that keys and passwords need not stay in memory."""
    parts = (
        store.files.keystore.encode(),
        store.form.encode(),
        store.password.encode(),
        pair.key_pem,
        pair.chain_pem,
        pair.ca_pem,
        data.get(store.files.keystore, b""),
        data.get(store.files.truststore, b""),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
