"""Account keys, and the JSON Web Signatures that requests to an ACME server are (RFC 8555 §6.2).

The JOSE itself is joserfc's; this is the one place that knows it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import warnings
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwk, jws
from joserfc.errors import SecurityWarning

from certwright.kit.texts import base64url
from certwright.pki.errors import BadKey
from certwright.pki.keys import PrivateKey, load_private_key

_EC_ALGORITHMS = {256: "ES256", 384: "ES384", 521: "ES512"}
_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "EdDSA", "HS256", "HS384", "HS512")
_SHORTEST_MAC_KEY = 16


class _Registry(jws.JWSRegistry):
    # An RSA key in the header is longer than the library's default allows.
    max_header_length = 8192


# `nonce` and `url` are headers of RFC 8555 §6.4 and §6.5, which the library does not know.
_REGISTRY = _Registry(algorithms=_ALGORITHMS, strict_check_header=False)


class AccountKey:
    """The private key of an account. Never shown: `repr` tells its thumbprint."""

    def __init__(self, key: PrivateKey) -> None:
        # Made of the key as it is: to have one read that is written down takes the library 30 ms.
        self._jose: Any
        if isinstance(key, rsa.RSAPrivateKey):
            self.algorithm, self._jose = "RS256", jwk.RSAKey(key, key)
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            self.algorithm, self._jose = _EC_ALGORITHMS[key.curve.key_size], jwk.ECKey(key, key)
        else:
            # RFC 8037 §3.1; the newer name "Ed25519" of RFC 9864 is not known to today's servers.
            self.algorithm, self._jose = "EdDSA", jwk.OKPKey(key, key)
        self.public: dict[str, Any] = dict(self._jose.as_dict(private=False))
        self.public.pop("kid", None)
        self.thumbprint = _thumbprint(self.public)
        """RFC 7638, in unpadded base64url."""

    @classmethod
    def from_pem(cls, pem: bytes) -> AccountKey:
        """Raises `pki.errors.BadKey` where there is no key that can be used."""
        return cls(load_private_key(pem))

    def __repr__(self) -> str:
        """Without the key."""
        return f"AccountKey({self.algorithm}, thumbprint {self.thumbprint})"

    def sign(self, protected: dict[str, Any], payload: bytes) -> bytes:
        """A flattened JSON signature (RFC 7515 §7.2.2) over `payload`; `alg` is added to the header."""
        return _sign({"alg": self.algorithm, **protected}, payload, self._jose)


def bind_external_account(account: AccountKey, *, url: str, key_id: str, mac_key: bytes) -> dict[str, Any]:
    """The `externalAccountBinding` member: the account's public key signed with the CA's MAC key
    (RFC 8555 §7.3.4)."""
    payload = json.dumps(account.public).encode()
    header = {"alg": "HS256", "kid": key_id, "url": url}
    signed: dict[str, Any] = json.loads(_sign(header, payload, jwk.OctKey.import_key(mac_key)))
    return signed


def read_mac_key(text: bytes) -> bytes:
    """The MAC key that a CA has given out, as base64url without padding; padding, the other alphabet and
    white space around it are forgiven. Raises `BadKey` for anything else."""
    plain = text.strip().rstrip(b"=").replace(b"+", b"-").replace(b"/", b"_")
    try:
        key = base64.b64decode(plain + b"=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise BadKey("the MAC key is not base64url; copy it from the CA exactly as given") from None
    if len(key) < _SHORTEST_MAC_KEY:
        raise BadKey(
            f"the MAC key has {len(key)} bytes, which no CA gives out; copy it from the CA exactly as given"
        )
    return key


def _sign(protected: dict[str, Any], payload: bytes, key: Any) -> bytes:
    with warnings.catch_warnings():
        # The library would rather see EdDSA's newer name.
        warnings.simplefilter("ignore", SecurityWarning)
        signed = jws.serialize_json({"protected": protected}, payload, key, registry=_REGISTRY)
    return json.dumps(signed).encode()


def _thumbprint(public: dict[str, Any]) -> str:
    needed = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
    members = {name: public[name] for name in needed[public["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return base64url(hashlib.sha256(text.encode()).digest())
