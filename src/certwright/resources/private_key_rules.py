"""Validation of a Certificate's private key: algorithm, size, encoding, signature algorithm, and the usages
and keystores that an algorithm excludes.

Source: cert-manager `internal/apis/certmanager/validation/certificate.go`; RFC 9881 for ML-DSA.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported
from certwright.resources import checks
from certwright.resources.certificate import (
    ENCRYPTION_USAGES,
    KEY_ALGORITHMS,
    KEY_ENCODINGS,
    ML_DSA_ALIASES,
    ML_DSA_SIZES,
    ROTATION_POLICIES,
    SIGNATURE_ALGORITHMS,
    CertificateSpec,
    PrivateKeySpec,
)


def validate(spec: CertificateSpec) -> list[FieldError]:
    """All errors in these fields."""
    return [*_private_key(spec.key), *_signature_algorithm(spec), *_ml_dsa(spec)]


def _private_key(key: PrivateKeySpec) -> list[FieldError]:
    path = "spec.privateKey"
    errors = checks.check_one_of(key.algorithm, f"{path}.algorithm", KEY_ALGORITHMS)
    errors += checks.check_one_of(key.encoding, f"{path}.encoding", KEY_ENCODINGS)
    errors += checks.check_one_of(key.rotation_policy, f"{path}.rotationPolicy", ROTATION_POLICIES)
    if key.size and key.algorithm_or_default == "RSA" and not 2048 <= key.size <= 8192:
        errors.append(invalid(f"{path}.size", key.size, "must be between 2048 and 8192 for rsa keyAlgorithm"))
    if key.size and key.algorithm == "ECDSA" and key.size not in (256, 384, 521):
        errors.append(not_supported(f"{path}.size", key.size, ("256", "384", "521")))
    if key.is_ml_dsa and key.size_or_default not in ML_DSA_SIZES:
        errors.append(not_supported(f"{path}.size", key.size, tuple(map(str, ML_DSA_SIZES))))
    elif key.size and key.size != ML_DSA_ALIASES.get(key.algorithm, key.size):
        detail = f"contradicts privateKey.algorithm {key.algorithm}; leave it out"
        errors.append(invalid(f"{path}.size", key.size, detail))
    return errors


def _ml_dsa(spec: CertificateSpec) -> list[FieldError]:
    """What an ML-DSA key cannot do."""
    if not spec.key.is_ml_dsa:
        return []
    errors = [
        invalid(
            f"spec.usages[{number}]", usage, "an ML-DSA key only signs (RFC 9881 section 5); leave it out"
        )
        for number, usage in enumerate(spec.usages)
        if usage in ENCRYPTION_USAGES
    ]
    stores = spec.keystores
    if stores is not None and stores.pkcs12 is not None and stores.pkcs12.create:
        detail = "this version cannot write an ML-DSA key into a PKCS#12 file; use keystores.jks or tls.key"
        errors.append(forbidden("spec.keystores.pkcs12", detail))
    return errors


def _signature_algorithm(spec: CertificateSpec) -> list[FieldError]:
    requested, path = spec.signature_algorithm, "spec.signatureAlgorithm"
    if errors := checks.check_one_of(requested, path, tuple(SIGNATURE_ALGORITHMS)):
        return errors
    key = f"MLDSA{spec.key.size_or_default}" if spec.key.is_ml_dsa else spec.key.algorithm_or_default
    if not requested or SIGNATURE_ALGORITHMS[requested] == key:
        return []
    fitting = " ".join(name for name, algorithm in SIGNATURE_ALGORITHMS.items() if algorithm == key)
    return [
        invalid(path, requested, f"for key algorithm {key} the allowed signature algorithms are [{fitting}]")
    ]
