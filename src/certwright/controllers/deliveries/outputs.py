"""The files of a Delivery from the data of a Secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import assert_never

import msgspec

from certwright.controllers.deliveries.permissions import (
    INVALID,
    NOT_FOUND,
    NOT_ISSUED,
    Refused,
    group_id,
    user_id,
)
from certwright.kit.versioned_files import File, Read
from certwright.kube.api.core import Secret
from certwright.pki import keystores
from certwright.pki.certificates import CertificateFacts, read_certificate, read_chain
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyEncoding, encode_private_key, load_private_key, public_key_der
from certwright.pki.keystores import DEFAULT_ALIAS, Contents
from certwright.pki.pem import blocks, certificates_in
from certwright.pki.pkcs12 import Profile
from certwright.resources.delivery import DEFAULT_OUTPUTS, HAVE_KEY, DeliveryOutput, DeliverySpec, Format

_PROFILE = Profile.MODERN_2023


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate, its PEM with intermediate certificates, its key, its CAs (empty: none), and the
    passwords of key stores by file name. Other text of the PEM, which servers may not parse, is left out."""

    certificate: CertificateFacts
    chain_pem: bytes
    key_pem: bytes
    ca_pem: bytes
    passwords: Mapping[str, str]

    def contents(self, password: str) -> Contents:
        """The content of a key store. A server needs no CA, so it has none."""
        return Contents(key_pem=self.key_pem, chain_pem=self.chain_pem, ca_pem=b"", password=password)


def read_source(secret: Secret, passwords: Mapping[str, str]) -> Source:
    """The source from a Secret. Raises `Refused`."""
    meta = secret.metadata
    missing = [name for name in ("tls.crt", "tls.key") if not secret.data.get(name)]
    if missing:
        raise Refused(NOT_ISSUED, f"Secret {meta.name} has no {' and no '.join(missing)} yet")
    with _readable("tls.crt", secret):
        chain = read_chain(secret.data["tls.crt"])
    with _readable("tls.key", secret):
        key_pem = secret.data["tls.key"].strip() + b"\n"
        key = load_private_key(key_pem)
    # A server that reads a wrong pair does not start, not even for its other sites.
    if public_key_der(key) != chain[0].public_key_der:
        reason = f"tls.key of Secret {meta.name} is not the private key of its tls.crt; correct the Secret"
        raise Refused(INVALID, reason)
    with _readable("ca.crt", secret):
        authorities = [read_certificate(block) for block in certificates_in(secret.data.get("ca.crt", b""))]
    return Source(
        certificate=chain[0],
        chain_pem=_joined(chain),
        key_pem=key_pem if len(blocks(key_pem)) == 1 else encode_private_key(key, KeyEncoding.PKCS8),
        ca_pem=_joined(authorities),
        passwords=passwords,
    )


@contextmanager
def _readable(name: str, secret: Secret) -> Iterator[None]:
    try:
        yield
    except PkiError as error:
        raise Refused(INVALID, f"{name} of Secret {secret.metadata.name} cannot be read: {error}") from error


def _joined(certificates: Iterable[CertificateFacts]) -> bytes:
    return b"".join(certificate.pem for certificate in certificates)


def outputs_of(spec: DeliverySpec, source: Source) -> Sequence[DeliveryOutput]:
    """The files of the Delivery; without any in the spec the default ones that the Secret has."""
    if spec.outputs:
        return spec.outputs
    is_ca, has_ca = source.certificate.is_ca, bool(source.ca_pem)
    return [
        output
        for output in DEFAULT_OUTPUTS
        if not (output.format == Format.KEY and is_ca) and (output.format != Format.CA or has_ca)
    ]


def make_files(
    outputs: Sequence[DeliveryOutput], source: Source, read: Read, now: datetime
) -> dict[str, File]:
    """The files by name. An existing key store with the same content is kept, because a new one would differ
    in its salt; if it cannot be read, its `origin` identifies it. Raises `Refused`. A key store takes some
    100 ms of processor time."""
    return {
        output.name: File(
            content=_content(output, source, read, now),
            is_private=output.format in HAVE_KEY,
            mode=int(output.mode, 8) if output.mode else None,
            uid=user_id(output.owner) if output.owner else None,
            gid=group_id(output.group) if output.group else None,
            origin=_origin(output, source),
        )
        for output in outputs
    }


def _origin(output: DeliveryOutput, source: Source) -> bytes:
    """The digest of a key store's inputs; empty for files that are deterministic."""
    if output.format not in (Format.PKCS12, Format.JKS):
        return b""
    return b"\0".join(
        (
            output.format.encode(),
            source.chain_pem,
            source.key_pem,
            source.passwords[output.name].encode(errors="replace"),
        )
    )


def _content(output: DeliveryOutput, source: Source, read: Read, now: datetime) -> bytes:
    match Format(output.format):
        case Format.CHAIN:
            return source.chain_pem
        case Format.KEY:
            return source.key_pem
        case Format.CA:
            if not source.ca_pem:
                raise Refused(
                    NOT_FOUND, f"{output.name}: the Secret has no ca.crt; its issuer returned no CA"
                )
            return source.ca_pem
        case Format.COMBINED:
            return source.chain_pem + source.key_pem
        case Format.PKCS12 | Format.JKS:
            return _key_store(output, source, read, now)
        case never:
            assert_never(never)


def _key_store(output: DeliveryOutput, source: Source, read: Read, now: datetime) -> bytes:
    contents = source.contents(source.passwords[output.name])
    existing = read(output.name)
    try:
        if output.format == Format.JKS:
            if existing and keystores.jks_fits(existing, None, contents, alias=DEFAULT_ALIAS):
                return existing
            return keystores.jks_files(contents, alias=DEFAULT_ALIAS, now=now)[0]
        if existing and keystores.pkcs12_fits(existing, None, contents, profile=_PROFILE):
            return existing
        return keystores.pkcs12_files(contents, profile=_PROFILE)[0]
    except (PkiError, ValueError) as error:
        raise Refused(INVALID, f"{output.name} cannot be made: {error}") from error
