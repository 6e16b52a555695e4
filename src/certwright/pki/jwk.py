"""Private keys as JSON Web Keys, the form in which certbot keeps account keys.

Source: RFC 7518 §6.2 (elliptic curves), §6.3 (RSA).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from certwright.pki import limits
from certwright.pki.errors import BadKey, border
from certwright.pki.keys import PrivateKey

_CURVES: dict[str, type[ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
}
_UNREADABLE = "not a private key that can be read; expected is a JSON Web Key of the type RSA or EC"


def load_private_jwk(content: Mapping[str, Any]) -> PrivateKey:
    """The private key of a JSON Web Key. Raises `BadKey`."""
    with border(BadKey, _UNREADABLE):
        match content.get("kty"):
            case "RSA":
                return _rsa(content)
            case "EC":
                return _ec(content)
            case _:
                raise BadKey(_UNREADABLE)


def _rsa(content: Mapping[str, Any]) -> PrivateKey:
    public = rsa.RSAPublicNumbers(_number(content, "e"), _number(content, "n"))
    p, q, d = (_number(content, name) for name in "pqd")
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, _number(content, "dp"), _number(content, "dq"), _number(content, "qi"), public
    )
    return numbers.private_key()


def _ec(content: Mapping[str, Any]) -> PrivateKey:
    curve = _CURVES[str(content.get("crv"))]()
    public = ec.EllipticCurvePublicNumbers(_number(content, "x"), _number(content, "y"), curve)
    return ec.EllipticCurvePrivateNumbers(_number(content, "d"), public).private_key()


def _number(content: Mapping[str, Any], name: str) -> int:
    text = content[name]
    # Base64 of 8192 bits takes 1,366 characters.
    if not isinstance(text, str) or len(text) > limits.MAX_RSA_BITS // 4:
        raise BadKey(_UNREADABLE)
    return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
