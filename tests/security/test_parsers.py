"""Each call that parses or computes with keys and certificates, and what limits its cost.

A tenant, a server or a file may provide the bytes. A new call fails here until its limit is in the table.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import certwright

ROOT = Path(certwright.__file__).parent
PARSERS = {
    *(
        f"load_{form}_{kind}"
        for form in ("pem", "der")
        for kind in ("private_key", "public_key", "parameters")
    ),
    *(f"load_{form}_x509_{kind}" for form in ("pem", "der") for kind in ("certificate", "csr", "crl")),
    *(f"load_der_ocsp_{kind}" for kind in ("request", "response")),
    *(f"load_{form}_pkcs7_certificates" for form in ("pem", "der")),
    *("load_pem_x509_certificates", "load_key_and_certificates", "load_pkcs12", "load_ssh_private_key"),
    *("load_cert_chain", "load_verify_locations", "create_default_context"),
    *("verify_directly_issued_by", "is_signature_valid", "from_seed_bytes"),
    *("pbkdf2_hmac", "scrypt", "PBKDF2HMAC", "Scrypt", "Argon2id", "private_bytes_raw"),
    *("RSAPrivateNumbers", "RSAPublicNumbers", "EllipticCurvePrivateNumbers", "EllipticCurvePublicNumbers"),
}
"""Functions and properties of `cryptography`, `ssl` and `hashlib` whose time depends on their input, or that
make objects whose use does."""

OWN = "the process's own key or certificate"
OPERATOR = "a file or flag of the operator"
FACTS = "DER of CertificateFacts or CsrFacts, whose key pki/limits has checked and whose size is limited"
PARSE = "linear in the bytes, of which there are at most as many as in an object; no key is used"
LIMITS = {
    ("acme/protocol/messages.py", "load_verify_locations"): PARSE,
    ("acme/solvers/tlsalpn01.py", "load_cert_chain"): OWN,
    ("acme/solvers/checks.py", "load_der_x509_certificate"): "at most 100 kB (OpenSSL); " + PARSE,
    ("app/tls_identity.py", "verify_directly_issued_by"): OWN,
    ("controllers/cache/transforms.py", "load_der_x509_certificate"): PARSE,
    ("controllers/cache/transforms.py", "load_der_x509_csr"): PARSE,
    (
        "kube/apiserver/auth/authentication.py",
        "load_der_x509_certificate",
    ): "a certificate that the handshake verified",
    ("kube/apiserver/auth/tokens.py", "load_pem_private_key"): OWN,
    ("kube/apiserver/background/own_objects.py", "load_pem_x509_certificates"): PARSE,
    ("kube/apiserver/http/https.py", "load_cert_chain"): OWN,
    ("kube/apiserver/http/https.py", "load_verify_locations"): OPERATOR,
    ("kube/apiserver/kinds/signing_requests.py", "load_pem_x509_csr"): "at most 128 KiB",
    ("kube/apiserver/kinds/signing_requests.py", "is_signature_valid"): "RSA keys are limited one line above",
    ("kube/apiserver/auth/privileges.py", "load_pem_x509_csr"): "as admitted by signing_requests.py",
    ("kube/apiserver/webhooks/client.py", "create_default_context"): PARSE,
    ("kube/client/dial.py", "create_default_context"): "without certificates of its own",
    ("kube/store/etcd/client.py", "create_default_context"): OPERATOR,
    ("kube/store/etcd/client.py", "load_cert_chain"): OPERATOR,
    (
        "kube/util/connections.py",
        "load_cert_chain",
    ): "encrypted keys are refused; pki/keys has read tenants' keys",
    ("kube/util/connections.py", "load_verify_locations"): PARSE,
    ("notifications/destinations.py", "create_default_context"): OPERATOR,
    ("pki/certificates.py", "load_der_x509_certificate"): "at most MAX_CHAIN_BYTES; " + FACTS,
    ("pki/certificates.py", "load_pem_x509_certificates"): PARSE,
    ("pki/chain.py", "verify_directly_issued_by"): "twice for each certificate, and cached; " + FACTS,
    ("pki/csr.py", "is_signature_valid"): FACTS,
    ("pki/csr.py", "load_der_x509_csr"): "at most csr.MAX_BYTES; " + FACTS,
    ("pki/csr.py", "load_pem_x509_csr"): PARSE,
    ("pki/keys.py", "EllipticCurvePrivateNumbers"): "curves of pki/limits",
    ("pki/keys.py", "EllipticCurvePublicNumbers"): "curves of pki/limits",
    ("pki/keys.py", "RSAPrivateNumbers"): "at most as long as MAX_RSA_BITS requires",
    ("pki/keys.py", "RSAPublicNumbers"): "at most as long as MAX_RSA_BITS requires",
    ("pki/keys.py", "load_der_public_key"): "limits.check_public_key",
    ("pki/keys.py", "load_pem_private_key"): "limits.private_key",
    ("pki/mldsa.py", "from_seed_bytes"): "a seed of 32 bytes",
    ("pki/pkcs12.py", "pbkdf2_hmac"): "at most ROUNDS iterations",
    ("pki/spki.py", "load_der_public_key"): "limits.check_public_key",
}


def calls() -> set[tuple[str, str]]:
    """Each mention of a parser: the file below `certwright`, and the name."""
    mentioned = re.compile("|".join(PARSERS))
    return {
        (str(path.relative_to(ROOT)), name)
        for path in ROOT.rglob("*.py")
        if mentioned.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if (name := _name(node)) in PARSERS
    }


def _name(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def test_each_parser_of_key_material_has_a_limit() -> None:
    assert calls() == set(LIMITS)
