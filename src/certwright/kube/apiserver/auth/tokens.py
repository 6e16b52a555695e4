"""JSON Web Tokens of this server: signing, verification, and the public key for other parties.

Source: RFC 7519 (JWT), RFC 7518 §3.4 (ES256), RFC 7517 (JWK); OpenID Connect Discovery 1.0 §4; Kubernetes
documentation, "Service account issuer discovery".
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.util.encoding import base64url
from certwright.kube.util.files import write_atomically

if TYPE_CHECKING:
    from joserfc.jwk import ECKey


DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER = "kubernetes/serviceaccount"
"""The issuer of tokens in Secrets, whatever the issuer of other tokens."""
JWKS_PATH = "/openid/v1/jwks"
_ALGORITHM = "ES256"


def load_or_make_key(path: Path) -> EllipticCurvePrivateKey:
    """The signing key stored at `path`; generated if the file is missing or has a key of another type.

    Raises `OSError`.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        key = generate_private_key(SECP256R1())
        write_atomically(path, _pem(key))
    return key


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class TokenIssuer:
    """Signs claims, and verifies its own signatures. `key` None: an ephemeral key.

    `issuer` is the claim `iss`, and the audience of tokens that name none.
    """

    def __init__(self, key: EllipticCurvePrivateKey | None = None, issuer: str = DEFAULT_ISSUER) -> None:
        self.issuer = issuer
        self._given = key

    @cached_property
    def _key(self) -> ECKey:
        # Costs 1.4 MB and 20 ms; most servers never see a token of a ServiceAccount.
        from joserfc.jwk import ECKey

        return ECKey.import_key(_pem(self._given or generate_private_key(SECP256R1())))

    @cached_property
    def _key_id(self) -> str:
        """As Kubernetes makes it: SHA-256 of the public key's DER."""
        der = self._key.as_der(private=False)
        return base64url(hashlib.sha256(der).digest())

    def sign(self, claims: Json) -> str:
        """A token with `claims` and, unless they name another, this issuer."""
        from joserfc import jwt  # see `_key`

        header = {"alg": _ALGORITHM, "kid": self._key_id}
        return jwt.encode(header, {"iss": self.issuer, **claims}, self._key, [_ALGORITHM])

    def verify(self, token: str) -> Json | None:
        """The claims of a token that this issuer has signed, or None. The caller checks times and
        audience."""
        from joserfc import jwt  # see `_key`
        from joserfc.errors import JoseError

        try:
            claims = jwt.decode(token, self._key, [_ALGORITHM]).claims
        except (JoseError, ValueError):
            return None
        return claims if claims.get("iss") in (self.issuer, LEGACY_ISSUER) else None

    def key_set(self) -> Json:
        """The public key, as a JWK Set."""
        public = self._key.as_dict(private=False)
        return {"keys": [{"use": "sig", **public, "kid": self._key_id, "alg": _ALGORITHM}]}

    def discovery(self) -> Json:
        """The OpenID provider's metadata."""
        return {
            "issuer": self.issuer,
            "jwks_uri": self.issuer.rstrip("/") + JWKS_PATH,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [_ALGORITHM],
        }
