"""Private keys: generate, encode, parse, compare; also parse JSON Web Keys, certbot's form of account keys.

Source: RFC 8017 (PKCS#1), RFC 5915 (SEC 1 EC keys), RFC 5958 (PKCS#8), RFC 8410 (Ed25519 in PKCS#8), RFC
9881 (ML-DSA in PKCS#8), RFC 7518 §6.2 and §6.3 (JSON Web Keys).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from certwright.pki import limits, mldsa
from certwright.pki.errors import BadKey, border

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | mldsa.PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | mldsa.PublicKey
Hash = hashes.SHA256 | hashes.SHA384 | hashes.SHA512

_F4 = 65537
_CURVES: dict[str, type[ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
}
_NOT_A_JWK = "not a private key that can be read; expected is a JSON Web Key of the type RSA or EC"


class KeyAlgorithm(StrEnum):
    """Private key algorithms, by their names in `spec.privateKey.algorithm`."""

    RSA = "RSA"
    ECDSA = "ECDSA"
    ED25519 = "Ed25519"
    ML_DSA = "ML-DSA"


class KeyEncoding(StrEnum):
    """PEM encodings of private keys, by their names in `spec.privateKey.encoding`."""

    PKCS1 = "PKCS1"
    """PKCS#1 for RSA, SEC 1 for ECDSA; Ed25519 and ML-DSA have neither and are encoded as PKCS#8."""
    PKCS8 = "PKCS8"


_ENCODINGS = frozenset(KeyEncoding)
_DEFAULT_SIZES = {
    KeyAlgorithm.RSA: 2048,
    KeyAlgorithm.ECDSA: 256,
    KeyAlgorithm.ED25519: 0,
    KeyAlgorithm.ML_DSA: 65,
}
_KNOWN = "RSA, ECDSA, Ed25519 and ML-DSA"


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Algorithm and size of a key. `size` is in bits: RSA 2048 to 8192, ECDSA 256, 384 or 521; for ML-DSA it
    is the parameter set: 44, 65 or 87. 0 is the algorithm's default (2048, 256, 65). It is ignored, and
    becomes 0, for Ed25519. Raises `BadKey` for any other size."""

    algorithm: KeyAlgorithm = KeyAlgorithm.RSA
    size: int = 0

    def __post_init__(self) -> None:
        algorithm, size = KeyAlgorithm(self.algorithm), self.size or _DEFAULT_SIZES[self.algorithm]
        if algorithm is KeyAlgorithm.RSA and not limits.MIN_RSA_BITS <= size <= limits.MAX_RSA_BITS:
            raise BadKey(
                f"an RSA key of {size} bits is not supported; write {limits.MIN_RSA_BITS} to "
                f"{limits.MAX_RSA_BITS}"
            )
        if algorithm is KeyAlgorithm.ECDSA and size not in limits.CURVES:
            raise BadKey(f"an ECDSA key of {size} bits is not supported; write 256, 384 or 521")
        if algorithm is KeyAlgorithm.ML_DSA and size not in mldsa.PARAMETER_SETS:
            raise BadKey(f"ML-DSA-{size} is not a parameter set; write 44, 65 or 87")
        object.__setattr__(self, "algorithm", algorithm)
        object.__setattr__(self, "size", 0 if algorithm is KeyAlgorithm.ED25519 else size)

    @classmethod
    def of(cls, algorithm: str = "", size: int = 0) -> KeyPlan:
        """The plan for the values of a spec; empty is RSA, 0 the default size. Raises `BadKey`."""
        try:
            return cls(KeyAlgorithm(algorithm or KeyAlgorithm.RSA), size)
        except ValueError:
            known = ", ".join(KeyAlgorithm)
            raise BadKey(f'"{algorithm}" is not a key algorithm; write one of {known}') from None

    @property
    def is_ml_dsa(self) -> bool:
        """Whether it is a key of ML-DSA."""
        return self.algorithm is KeyAlgorithm.ML_DSA

    def __str__(self) -> str:
        if self.is_ml_dsa:
            return f"{self.algorithm}-{self.size}"
        return f"{self.algorithm} {self.size}" if self.size else str(self.algorithm)


def generate(plan: KeyPlan) -> PrivateKey:
    """Generate a private key. Takes 10 µs for ECDSA or Ed25519, half a millisecond for ML-DSA, 50 ms to
    seconds for RSA (GIL released)."""
    match plan.algorithm:
        case KeyAlgorithm.RSA:
            return rsa.generate_private_key(public_exponent=_F4, key_size=plan.size)
        case KeyAlgorithm.ECDSA:
            return ec.generate_private_key(limits.CURVES[plan.size].kind())
        case KeyAlgorithm.ED25519:
            return ed25519.Ed25519PrivateKey.generate()
        case KeyAlgorithm.ML_DSA:
            return mldsa.PARAMETER_SETS[plan.size].private.generate()


def encode_private_key(key: PrivateKey, encoding: str = KeyEncoding.PKCS1) -> bytes:
    """The key as unencrypted PEM. `encoding` is `PKCS1` or `PKCS8`; Ed25519 and ML-DSA (seed form) are always
    PKCS#8.

    Raises `BadKey` for another encoding.
    """
    if encoding not in _ENCODINGS:
        raise BadKey(f'"{encoding}" is not a key encoding; write PKCS1 or PKCS8')
    has_own_form = isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    traditional = encoding == KeyEncoding.PKCS1 and has_own_form
    form = (
        serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
    )
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def load_private_key(pem: bytes) -> PrivateKey:
    """Parse an unencrypted private key from PEM (PKCS#1, SEC 1 or PKCS#8; of ML-DSA any form with a seed).
    Raises `BadKey`, also for a key that is not supported (see `limits`).

    Takes some 15 µs: checks the consistency of an RSA key's numbers, but not the primality of its primes
    (that takes 25 ms; Go's `rsa.PrivateKey.Validate` omits it too).
    """
    checked = limits.private_key(pem)
    with border(BadKey, limits.EXPECTED_KEY):
        try:
            key = serialization.load_pem_private_key(
                checked, password=None, unsafe_skip_rsa_key_validation=True
            )
        except ValueError:
            if (expanded := mldsa.load_expanded(checked)) is not None:
                return expanded
            raise
    if not isinstance(key, PrivateKey):
        raise BadKey(f"the private key is of another algorithm than {_KNOWN}")
    supported_plan(key)
    if isinstance(key, rsa.RSAPrivateKey):
        # RFC 8017 §3.2: "e * dP == 1 (mod (p-1))", "e * dQ == 1 (mod (q-1))", "q * qInv == 1 (mod p)". That
        # n = p * q is checked when the key is loaded.
        with border(BadKey, limits.EXPECTED_KEY):
            n = key.private_numbers()
            p1, q1, e = n.p - 1, n.q - 1, n.public_numbers.e
            fits = n.dmp1 == n.d % p1 and n.dmq1 == n.d % q1 and e * n.dmp1 % p1 == 1 and e * n.dmq1 % q1 == 1
            if not fits or n.iqmp * n.q % n.p != 1:
                raise BadKey("the numbers of the RSA private key do not fit each other; the key is damaged")
    return key


def supported_plan(key: PrivateKey | PublicKey) -> KeyPlan:
    """The plan of the key. Raises `BadKey` for a key that we would not generate (RSA 1024, another curve),
    because some clients cannot verify its signatures."""
    match key:
        case rsa.RSAPrivateKey() | rsa.RSAPublicKey():
            return KeyPlan(KeyAlgorithm.RSA, key.key_size)
        case ec.EllipticCurvePrivateKey() | ec.EllipticCurvePublicKey():
            # P-256 and secp256k1 have the same size: the curve decides.
            if not any(isinstance(key.curve, curve.kind) for curve in limits.CURVES.values()):
                raise BadKey(
                    f"an ECDSA key on the curve {key.curve.name} is not supported; use P-256, P-384 or P-521"
                )
            return KeyPlan(KeyAlgorithm.ECDSA, key.key_size)
        case ed25519.Ed25519PrivateKey() | ed25519.Ed25519PublicKey():
            return KeyPlan(KeyAlgorithm.ED25519)
        case _:
            return KeyPlan(KeyAlgorithm.ML_DSA, mldsa.size_of(key))


def plan_of(key: PrivateKey | PublicKey) -> KeyPlan | None:
    """The plan of that key; None for a key that is not supported."""
    try:
        return supported_plan(key)
    except BadKey:
        return None


def public_key_of(key: PrivateKey | PublicKey) -> PublicKey:
    """The public half of a private key; a public key itself."""
    return key.public_key() if isinstance(key, PrivateKey) else key


def load_public_key(der: bytes) -> PublicKey:
    """Parse the key in a DER SubjectPublicKeyInfo. Raises `BadKey`."""
    limits.check_public_key(der)
    with border(BadKey, "the public key cannot be read"):
        key = serialization.load_der_public_key(der)
    if not isinstance(key, PublicKey):
        raise BadKey(f"the public key is of another algorithm than {_KNOWN}")
    return key


def public_key_der(key: PrivateKey | PublicKey) -> bytes:
    """The public key as DER SubjectPublicKeyInfo (RFC 5280 §4.1.2.7): equal bytes, equal keys.

    Compare with `CsrFacts.public_key_der` and `CertificateFacts.public_key_der`.
    """
    return public_key_of(key).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def signature_hash(key: PrivateKey) -> Hash | None:
    """The default signature hash of a CA: SHA-256 for RSA, matching the curve for ECDSA, none for Ed25519
    (RFC 8410) and ML-DSA (RFC 9881), which include their hash."""
    match key:
        case rsa.RSAPrivateKey():
            return hashes.SHA256()
        case ec.EllipticCurvePrivateKey():
            if key.key_size <= 256:
                return hashes.SHA256()
            return hashes.SHA384() if key.key_size <= 384 else hashes.SHA512()
        case _:
            return None


def is_slow(key: PrivateKey) -> bool:
    """Whether a signature takes a millisecond or more: RSA (up to 30 ms) and ML-DSA (2 ms), but not ECDSA and
    Ed25519 (200 µs with the certificate around it)."""
    return isinstance(key, rsa.RSAPrivateKey | mldsa.PrivateKey)


_ALGORITHMS: dict[str, tuple[type, type[Hash] | None]] = {
    "SHA256WithRSA": (rsa.RSAPrivateKey, hashes.SHA256),
    "SHA384WithRSA": (rsa.RSAPrivateKey, hashes.SHA384),
    "SHA512WithRSA": (rsa.RSAPrivateKey, hashes.SHA512),
    "ECDSAWithSHA256": (ec.EllipticCurvePrivateKey, hashes.SHA256),
    "ECDSAWithSHA384": (ec.EllipticCurvePrivateKey, hashes.SHA384),
    "ECDSAWithSHA512": (ec.EllipticCurvePrivateKey, hashes.SHA512),
    "PureEd25519": (ed25519.Ed25519PrivateKey, None),
    **{f"PureMLDSA{size}": (chosen.private, None) for size, chosen in mldsa.PARAMETER_SETS.items()},
}
"""The values of `spec.signatureAlgorithm`: key algorithm and hash."""


def uses_hash_of(signature_algorithm: str, hash_used: object) -> bool:
    """Whether `hash_used`, the hash of a signature (None for Ed25519 and ML-DSA), is the one of a value of
    `spec.signatureAlgorithm`. An unknown value matches every hash."""
    if signature_algorithm not in _ALGORITHMS:
        return True
    chosen = _ALGORITHMS[signature_algorithm][1]
    return hash_used is None if chosen is None else isinstance(hash_used, chosen)


def request_hash(key: PrivateKey, signature_algorithm: str = "") -> Hash | None:
    """The hash for a request signed with `key`: the named one, else one that matches the key.

    `signature_algorithm` is a value of `spec.signatureAlgorithm`. RSA keys of 3072 bits use SHA-384, of
    4096 and more SHA-512 (cert-manager `pki.SignatureAlgorithm`). Raises `BadKey` if the name is
    unknown or for another key algorithm.
    """
    if not signature_algorithm:
        if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 3072:
            return hashes.SHA512() if key.key_size >= 4096 else hashes.SHA384()
        return signature_hash(key)
    kind, chosen = _ALGORITHMS.get(signature_algorithm, (None, None))
    if kind is None:
        raise BadKey(
            f'"{signature_algorithm}" is not a signature algorithm; write one of {", ".join(_ALGORITHMS)}'
        )
    if not isinstance(key, kind):
        raise BadKey(
            f"the signature algorithm {signature_algorithm} does not go with this kind of private key"
        )
    return chosen() if chosen else None


def load_private_jwk(content: Mapping[str, Any]) -> PrivateKey:
    """The private key of a JSON Web Key of the type RSA or EC. Raises `BadKey`."""

    def number(name: str) -> int:
        text = content[name]
        # Base64 of 8192 bits takes 1,366 characters.
        if not isinstance(text, str) or len(text) > limits.MAX_RSA_BITS // 4:
            raise BadKey(_NOT_A_JWK)
        return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")

    with border(BadKey, _NOT_A_JWK):
        match content.get("kty"):
            case "RSA":
                public = rsa.RSAPublicNumbers(number("e"), number("n"))
                p, q, d, dp, dq, qi = map(number, ("p", "q", "d", "dp", "dq", "qi"))
                return rsa.RSAPrivateNumbers(p, q, d, dp, dq, qi, public).private_key()
            case "EC":
                curve = _CURVES[str(content.get("crv"))]()
                point = ec.EllipticCurvePublicNumbers(number("x"), number("y"), curve)
                return ec.EllipticCurvePrivateNumbers(number("d"), point).private_key()
            case _:
                raise BadKey(_NOT_A_JWK)
