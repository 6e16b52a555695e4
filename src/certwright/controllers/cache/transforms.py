"""Cache transforms: strip private keys and issued certificates from idle objects.

Of an idle Secret, readers need the certificate, and of the private key only the public half, which the
certificate contains. Of a finished request, they need the spec, and whether its certificate is the Secret's.
The placeholders are types that no encoder accepts, so they cannot be written by mistake. A caller that needs
the bytes reads the whole object from the API server.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.pki import keys, pem, spki
from certwright.pki.certificates import rewritten
from certwright.pki.csr import known_csr, read_csr
from certwright.pki.errors import BadCertificate, BadCsr, PkiError, border
from certwright.resources import names, reasons
from certwright.resources.request import CertificateRequest

_PAIR = frozenset({names.TLS_PRIVATE_KEY_KEY, names.TLS_CERT_KEY, names.CA_CERT_KEY})
_CERTIFICATE, _REQUEST = b"CERTIFICATE", b"CERTIFICATE REQUEST"
# In bytes: only RSA keys have as many.
_MUCH = 200


class NeedsFullSecret(Exception):
    """The private key of a Secret is needed, but stripped: read the full Secret, and retry."""


class WithheldKey(bytes):
    """Placeholder for the private key (PEM, PKCS#1, PKCS#8 or SEC 1) of the first certificate in `chain_pem`.
    Its own bytes are the key's `encoding_of`."""

    chain_pem: bytes

    @classmethod
    def of(cls, chain_pem: bytes, encoding: str = "PKCS1") -> WithheldKey:
        """For the key of that certificate."""
        made = cls(encoding.encode())
        made.chain_pem = chain_pem
        return made


class WithheldCertificate(bytes):
    """Placeholder for an issuer's answer: the SHA-256 of the stored text."""

    @classmethod
    def of(cls, chain_pem: bytes) -> WithheldCertificate:
        """The placeholder for a text that is `rewritten`."""
        return cls(sha256(chain_pem).digest())


class UnsignedRequest(bytes):
    """A PEM signing request whose signature is replaced by zeros; `der` has the same content.

    `key_digest`: the SHA-256 of the SubjectPublicKeyInfo if another key stands in its place; otherwise empty.
    """

    der: bytes
    key_digest: bytes

    @classmethod
    def of(cls, der: bytes, key_digest: bytes = b"") -> UnsignedRequest:
        """The request with this digest of its key."""
        made = cls(pem.join(((_REQUEST, der),)))
        made.der, made.key_digest = der, key_digest
        return made


def encoding_of(key_pem: bytes) -> str:
    """The encoding of a private key, stripped or not, as a spec names it: PKCS8, or PKCS1 for PKCS#1 and
    SEC 1."""
    if isinstance(key_pem, WithheldKey):
        return key_pem.decode()
    return "PKCS8" if b"-----BEGIN PRIVATE KEY-----" in key_pem else "PKCS1"


def is_for_key(pem: bytes, public_key_der: bytes) -> bool:
    """Whether a signing request, complete or not, is for that key. Raises `BadCsr`."""
    if isinstance(pem, UnsignedRequest) and pem.key_digest:
        return pem.key_digest == sha256(public_key_der).digest()
    csr = known_csr(pem.der) if isinstance(pem, UnsignedRequest) else read_csr(pem)
    return csr.public_key_der == public_key_der


def is_complete(obj: Secret | CertificateRequest) -> bool:
    """Whether nothing of the object is stripped."""
    if isinstance(obj, Secret):
        return not isinstance(obj.data.get(names.TLS_PRIVATE_KEY_KEY), WithheldKey)
    return not isinstance(obj.status.certificate, WithheldCertificate)


def same_certificate(asked: CertificateRequest, chain_pem: bytes | None) -> bool:
    """Whether the PEM text equals the stored answer to a request."""
    current = asked.status.certificate
    if isinstance(current, WithheldCertificate):
        return chain_pem is not None and current == WithheldCertificate.of(chain_pem)
    return rewritten(current) == chain_pem


def without_key(secret: Secret, *, public_key_der: bytes = b"") -> Secret:
    """The Secret without its private key, if it is a Certificate's and contains a matching pair and nothing
    else; otherwise unchanged. Takes some 40 µs, half of it where the key's `public_key_der` is known."""
    data = secret.data
    key_pem, chain_pem = data.get(names.TLS_PRIVATE_KEY_KEY), data.get(names.TLS_CERT_KEY)
    if not key_pem or not chain_pem or isinstance(key_pem, WithheldKey) or not data.keys() <= _PAIR:
        return secret
    if names.CERTIFICATE_NAME not in secret.metadata.annotations:
        return secret
    if not _is_pair(key_pem, chain_pem, public_key_der):
        return secret
    return replace(
        secret, data={**data, names.TLS_PRIVATE_KEY_KEY: WithheldKey.of(chain_pem, encoding_of(key_pem))}
    )


def without_answer(request: CertificateRequest) -> CertificateRequest:
    """The request without its certificate and signature, if a certificate has answered it; otherwise
    unchanged."""
    status = request.status
    ready = conditions.find(status.conditions, reasons.READY)
    if not status.certificate or ready is None or (ready.status, ready.reason) != ("True", reasons.ISSUED):
        return request
    if not is_complete(request) or (unsigned := _unsigned(request.spec.request)) is None:
        return request
    return replace(
        request,
        spec=replace(request.spec, request=unsigned),
        status=replace(status, certificate=WithheldCertificate.of(rewritten(status.certificate))),
    )


def _is_pair(key_pem: bytes, chain_pem: bytes, public_key_der: bytes) -> bool:
    """Whether the key is that of the first certificate. The rest of the text need not be readable."""
    der = _first(chain_pem, _CERTIFICATE)
    try:
        with border(BadCertificate, "not a certificate"):
            x509.load_der_x509_certificate(der)
            certified = spki.of_certificate(der)
        return (public_key_der or keys.public_key_der(keys.load_private_key(key_pem))) == certified
    except PkiError:
        return False


def _unsigned(text: bytes) -> UnsignedRequest | None:
    """None for a text that is no request."""
    der = _first(text, _REQUEST)
    try:
        with border(BadCsr, "not a certificate signing request"):
            signature, key = x509.load_der_x509_csr(der).signature, spki.of_request(der)
    except PkiError:
        return None
    # RFC 2986 §4.2: the signature is the last of the three parts.
    bare = der.removesuffix(signature) + bytes(len(signature))
    blank = _blank_key(key)
    if blank and bare.count(key) == 1:
        return UnsignedRequest.of(bare.replace(key, blank), sha256(key).digest())
    return UnsignedRequest.of(bare)


def _first(text: bytes, label: bytes) -> bytes:
    """The decoded bytes of the first block of a PEM text; empty if the block has another label."""
    blocks = pem.blocks(text)
    return blocks[0][1] if blocks and blocks[0][0] == label else b""


def _blank_key(public_key_der: bytes) -> bytes:
    """A fixed RSA key of that length, in place of a key that takes much memory; empty for other types."""
    if len(public_key_der) < _MUCH:
        return b""
    try:
        key = keys.load_public_key(public_key_der)
    except PkiError:
        return b""
    if not isinstance(key, rsa.RSAPublicKey) or keys.public_key_der(key) != public_key_der:
        return b""
    size = key.key_size // 8
    modulus = key.public_numbers().n.to_bytes(size + 1, "big")[-size:]
    return public_key_der.replace(modulus, b"\xc0" + b"\x01" * (size - 1))
