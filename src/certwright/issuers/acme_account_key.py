"""The key of an ACME account in its Secret: read, or generated before the account is registered.

Source: RFC 8555 §7.3; cert-manager `pkg/issuer/acme/setup.go`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certwright.acme.protocol.jws import AccountKey
from certwright.issuers.acme_account_errors import NOT_VERIFIED, VERIFY, AccountError
from certwright.issuers.contract import AcmeTools, Tools
from certwright.pki import keys
from certwright.pki.errors import BadKey
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.names import TLS_PRIVATE_KEY_KEY

_KEYS: Final = 1024


def account_key(spec: ACMEIssuer, secret: Mapping[str, bytes] | None) -> AccountKey | None:
    """The account's key, registered or not; None if the Secret contains no readable key."""
    try:
        return read_key(spec, secret)
    except AccountError:
        return None


async def get_or_create(spec: ACMEIssuer, namespace: str, tools: Tools, acme: AcmeTools) -> AccountKey:
    """The key in the Secret, which is created unless the issuer forbids it. Raises `AccountError`."""
    name = spec.private_key_secret_ref.name
    key = read_key(spec, await tools.get_secret(name))
    if key is not None:
        return key
    if spec.disable_account_key_generation:
        raise AccountError(
            NOT_VERIFIED,
            f"{VERIFY}the ACME issuer config has 'disableAccountKeyGeneration' set to true, but the secret "
            f"was not found: {missing_key(spec)}",
        )
    made = await tools.executor.run(lambda: keys.generate(keys.KeyPlan.of("RSA", 2048)), namespace)
    pem = keys.encode_private_key(made, "PKCS1")
    # Durable before registration: an account whose key is lost is lost. Another writer may have been faster.
    stored = await acme.create_secret(name, {_entry(spec): pem})
    key = read_key(spec, stored)
    if key is None:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}{missing_key(spec)}")
    return key


def _entry(spec: ACMEIssuer) -> str:
    return spec.private_key_secret_ref.key or TLS_PRIVATE_KEY_KEY


def missing_key(spec: ACMEIssuer) -> str:
    """That the Secret holds no key, as a part of a sentence."""
    return f'Secret "{spec.private_key_secret_ref.name}" holds no account key under "{_entry(spec)}"'


def read_key(spec: ACMEIssuer, data: Mapping[str, bytes] | None) -> AccountKey | None:
    """The key in the Secret; None if there is no such Secret. Raises `AccountError` for one without a key."""
    if data is None:
        return None
    pem = data.get(_entry(spec))
    if not pem:
        raise AccountError(
            NOT_VERIFIED,
            f"{VERIFY}{missing_key(spec)}; put the key there, or delete the Secret to have a new one made",
        )
    try:
        return _parsed(pem)
    except BadKey as error:
        name = spec.private_key_secret_ref.name
        raise AccountError(NOT_VERIFIED, f'{VERIFY}the account key in Secret "{name}": {error}') from error


def key_hash(data: Mapping[str, bytes] | None, spec: ACMEIssuer) -> str:
    """cert-manager's `lastPrivateKeyHash`: base64 of the SHA-256 of the key's DER (PKCS#1 for RSA)."""
    pem = (data or {}).get(_entry(spec), b"")
    if not pem:
        return ""
    return _digest(pem)


# Parsing an RSA key takes 30 ms, and every step of every order needs the account's.
@lru_cache(maxsize=_KEYS)
def _parsed(pem: bytes) -> AccountKey:
    return AccountKey.from_pem(pem)


@lru_cache(maxsize=_KEYS)
def _digest(pem: bytes) -> str:
    key = keys.load_private_key(pem)
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    form = serialization.PrivateFormat.TraditionalOpenSSL if is_rsa else serialization.PrivateFormat.PKCS8
    der = key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
    return base64.b64encode(hashlib.sha256(der).digest()).decode()
