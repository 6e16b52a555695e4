"""Names of key and signature algorithms in `spec.privateKey` and `spec.signatureAlgorithm`.

Source: cert-manager `pkg/apis/certmanager/v1/types_certificate.go`; FIPS 204 and RFC 9881 for ML-DSA, which
cert-manager does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ML_DSA: Final = "ML-DSA"
ML_DSA_SIZES: Final = (44, 65, 87)
"""The parameter sets of FIPS 204."""
ML_DSA_ALIASES: Final[Mapping[str, int]] = {f"MLDSA{size}": size for size in ML_DSA_SIZES}
"""Algorithm names that include the parameter set."""

KEY_ALGORITHMS: Final = ("RSA", "ECDSA", "Ed25519", ML_DSA, *ML_DSA_ALIASES)
KEY_ENCODINGS: Final = ("PKCS1", "PKCS8")
DEFAULT_KEY_SIZES: Final[Mapping[str, int]] = {"RSA": 2048, "ECDSA": 256, ML_DSA: 65}
"""In bits; of ML-DSA, the parameter set."""
SIGNATURE_ALGORITHMS: Final[Mapping[str, str]] = {
    "SHA256WithRSA": "RSA",
    "SHA384WithRSA": "RSA",
    "SHA512WithRSA": "RSA",
    "ECDSAWithSHA256": "ECDSA",
    "ECDSAWithSHA384": "ECDSA",
    "ECDSAWithSHA512": "ECDSA",
    "PureEd25519": "Ed25519",
    **{f"Pure{alias}": alias for alias in ML_DSA_ALIASES},
}
"""Each signature algorithm, and its key algorithm; of ML-DSA, with the parameter set."""
ENCRYPTION_USAGES: Final = (
    "key encipherment",
    "data encipherment",
    "key agreement",
    "encipher only",
    "decipher only",
)
"""Key usages that an ML-DSA key cannot have (RFC 9881 §5)."""
