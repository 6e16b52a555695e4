"""Account keys, and the JSON Web Signatures of ACME requests (RFC 8555 §6.2).

Keys and algorithms are joserfc's; only this module imports it. The three parts of a JWS are serialized here,
because joserfc's serialization costs as much as an elliptic-curve signature, eight times per certificate.
The library (1 MB) is imported with the first key: many processes have no ACME issuer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from certwright.kube.util.encoding import base64url
from certwright.pki.errors import BadKey
from certwright.pki.keys import PrivateKey, load_private_key

_EC_ALGORITHMS = {256: "ES256", 384: "ES384", 521: "ES512"}
_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "EdDSA", "HS256")

# The bytes of a signature, of what is to be signed and a key of the library.
_Sign = Callable[[bytes, Any], bytes]


class AccountKey:
    """The private key of an account. Never shown: `repr` has only its thumbprint."""

    def __init__(self, key: PrivateKey) -> None:
        from joserfc import jwk

        # Built from the key object: parsing a serialized key takes the library 30 ms.
        self._jose: Any
        if isinstance(key, rsa.RSAPrivateKey):
            self.algorithm, self._jose = "RS256", jwk.RSAKey(key, key)
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            self.algorithm, self._jose = _EC_ALGORITHMS[key.curve.key_size], jwk.ECKey(key, key)
        elif isinstance(key, ed25519.Ed25519PrivateKey):
            # RFC 8037 §3.1; today's servers do not know the newer name "Ed25519" of RFC 9864.
            self.algorithm, self._jose = "EdDSA", jwk.OKPKey(key, key)
        else:
            raise BadKey("an ACME account cannot have an ML-DSA key; use RSA, ECDSA or Ed25519")
        self._sign = _signer(self.algorithm)
        self.public: dict[str, Any] = dict(self._jose.as_dict(private=False))
        self.public.pop("kid", None)
        needed = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
        members = {name: self.public[name] for name in needed[self.public["kty"]]}
        text = json.dumps(members, sort_keys=True, separators=(",", ":"))
        self.thumbprint = base64url(hashlib.sha256(text.encode()).digest())
        """RFC 7638, in unpadded base64url."""

    @classmethod
    def from_pem(cls, pem: bytes) -> AccountKey:
        """Parse a private key. Raises `pki.errors.BadKey` for an unusable key."""
        return cls(load_private_key(pem))

    def __repr__(self) -> str:
        return f"AccountKey({self.algorithm}, thumbprint {self.thumbprint})"

    @property
    def is_slow(self) -> bool:
        """Whether a signature is slow enough to be worth a thread (RSA: 0.3 ms; an elliptic curve takes a
        tenth of that)."""
        return self.algorithm == "RS256"

    def sign(self, protected: dict[str, Any], payload: bytes) -> bytes:
        """A flattened JSON signature (RFC 7515 §7.2.2) over `payload`; `alg` is added to the header."""
        return _sign({"alg": self.algorithm, **protected}, payload, self._sign, self._jose)


def bind_external_account(account: AccountKey, *, url: str, key_id: str, mac_key: bytes) -> dict[str, Any]:
    """The `externalAccountBinding` member: the account's public key signed with the CA's MAC key
    (RFC 8555 §7.3.4)."""
    from joserfc import jwk
    from joserfc.errors import SecurityWarning

    # Vault and OpenBao compare these bytes with those of `jwk` in the outer header.
    payload = msgspec.json.encode(account.public)
    header = {"alg": "HS256", "kid": key_id, "url": url}
    with warnings.catch_warnings():
        # The library warns about short keys, but the CA chose this one.
        warnings.simplefilter("ignore", SecurityWarning)
        key = jwk.OctKey.import_key(mac_key)
    signed: dict[str, Any] = json.loads(_sign(header, payload, _signer("HS256"), key))
    return signed


def read_mac_key(text: bytes) -> bytes:
    """Decode the MAC key of a CA, base64url without padding; accepts padding, the standard alphabet and
    surrounding white space. Raises `BadKey` for anything else."""
    plain = text.strip().rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_")
    try:
        key = base64.b64decode(plain + b"=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise BadKey("the MAC key is not base64url; copy it from the CA exactly as given") from None
    # The CA decides on the length: cert-manager's own tests have a key of 12 bytes.
    if not key:
        raise BadKey("the MAC key is empty; copy it from the CA exactly as given")
    return key


def _signer(algorithm: str) -> _Sign:
    from joserfc import jws
    from joserfc.errors import SecurityWarning

    with warnings.catch_warnings():
        # The library warns about EdDSA because of its newer name.
        warnings.simplefilter("ignore", SecurityWarning)
        return jws.JWSRegistry(algorithms=_ALGORITHMS).get_alg(algorithm).sign


def _sign(protected: dict[str, Any], payload: bytes, sign: _Sign, key: Any) -> bytes:
    header, body = base64url(msgspec.json.encode(protected)), base64url(payload)
    signature = base64url(sign(f"{header}.{body}".encode(), key))
    # None of the three can contain a character that JSON escapes.
    return f'{{"protected":"{header}","payload":"{body}","signature":"{signature}"}}'.encode()
