"""Delivery: a certificate as files on the machine of a certwright process, and the hook that runs afterwards.

The operator of that process names the root directories and hooks; an object only refers to their names. Rules
over these fields are in `delivery_rules.py`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.resources.references import LocalObjectReference, SecretKeySelector

MOST_OUTPUTS: Final = 16
MOST_ADDRESSES: Final = 16
FILE_NAME: Final = "[A-Za-z0-9_][A-Za-z0-9._@+-]*"
"""A regular expression. No leading dot, because such names are those of versions (`kit/versioned_files.py`),
`.` and `..`."""


class Format(StrEnum):
    """The content of a file."""

    CHAIN = "CertificateChain"
    KEY = "PrivateKey"
    CA = "CA"
    COMBINED = "Combined"
    PKCS12 = "PKCS12"
    JKS = "JKS"


HAVE_KEY: Final = frozenset((Format.KEY, Format.COMBINED, Format.PKCS12, Format.JKS))
"""The formats that contain the private key."""
HAVE_PASSWORD: Final = frozenset((Format.PKCS12, Format.JKS))


class DeliveryOutput(Struct, frozen=True, kw_only=True):
    """One file."""

    name: Annotated[str, doc("Name of the file in the directory.", pattern=f"^{FILE_NAME}$", maxLength=253)]
    format: Annotated[
        str,
        doc(
            "CertificateChain: the certificate and its intermediate certificates; PrivateKey; CA; Combined: "
            "certificate, intermediate certificates and private key in one file, in this order, as HAProxy "
            "reads it; PKCS12 and JKS: a key store, with the password of passwordSecretRef.",
            enum=tuple(item.value for item in Format),
        ),
    ]
    password_secret_ref: Annotated[
        SecretKeySelector | None,
        doc("The Secret with the password of a key store; required for PKCS12 and JKS, and only there."),
    ] = None
    owner: Annotated[
        str, doc("Name of the user who owns the file: one that the root allows. Without it, as before.")
    ] = ""
    group: Annotated[
        str, doc("Name of the group of the file: one that the root allows. Without it, as before.")
    ] = ""
    mode: Annotated[
        str,
        doc(
            "Permissions in octal, e.g. 0640: ones that the root allows. Without it, as before, and at first "
            "0600 for files with the private key and 0644 for others.",
            pattern="^(0[0-7]{3})?$",
        ),
    ] = ""


class ServedAt(Struct, frozen=True, kw_only=True):
    """An address where a server should serve the certificate."""

    address: Annotated[str, doc("Host and port, e.g. www.example.com:443 or [2001:db8::1]:443.")]
    server_name: Annotated[str, doc("The name in the TLS handshake (SNI); without it the host.")] = ""
    start_tls: Annotated[
        str,
        doc(
            "The protocol in which TLS begins after a command; empty: TLS from the first byte.",
            enum=("", "smtp", "imap", "postgres"),
        ),
    ] = field(default="", name="startTLS")


DEFAULT_OUTPUTS: Final = (
    DeliveryOutput(name="tls.crt", format=Format.CHAIN),
    DeliveryOutput(name="tls.key", format=Format.KEY),
    DeliveryOutput(name="ca.crt", format=Format.CA),
)


class DeliverySpec(Struct, frozen=True, kw_only=True):
    """Which certificate, which files, and what runs afterwards."""

    root: Annotated[
        str,
        doc(
            "Name of a root directory. Only the certwright process whose operator has named it "
            "(--delivery-root) delivers.",
            minLength=1,
        ),
    ]
    path: Annotated[
        str,
        doc(
            "The directory of the files, relative to the root; it is created, and no other Delivery uses it.",
            pattern=f"^{FILE_NAME}(/{FILE_NAME})*$",
            maxLength=1024,
        ),
    ]
    certificate_ref: Annotated[
        LocalObjectReference | None, doc("The Certificate, in the same namespace; or use secretRef.")
    ] = None
    secret_ref: Annotated[
        LocalObjectReference | None,
        doc("A Secret with tls.crt and tls.key, in the same namespace; or use certificateRef."),
    ] = None
    outputs: Annotated[
        tuple[DeliveryOutput, ...],
        doc(
            "The files, all replaced at one moment. Without it tls.crt (CertificateChain), tls.key "
            "(PrivateKey; not of a CA) and ca.crt (CA).",
            maxItems=MOST_OUTPUTS,
        ),
    ] = ()
    hook: Annotated[
        str,
        doc(
            "Name of the hook that runs after the files were replaced: one that the operator has named "
            "(--hook)."
        ),
    ] = ""
    served_at: Annotated[
        tuple[ServedAt, ...],
        doc(
            "Addresses where the certificate should then be served, for the condition Deployed: ones that "
            "the operator allows (--deployed-check-allow).",
            maxItems=MOST_ADDRESSES,
        ),
    ] = ()


class Delivered(Struct, frozen=True, kw_only=True):
    """A certificate whose files were replaced."""

    fingerprint: Annotated[str, doc("SHA-256 fingerprint of the certificate, in hexadecimal.")] = ""
    not_after: Annotated[datetime | None, doc("When the certificate expires.")] = None
    time: Annotated[datetime | None, doc("When its files were replaced.")] = None


class DeliveryStatus(Struct, frozen=True, kw_only=True):
    """What is delivered."""

    current: Annotated[Delivered | None, doc("The delivered certificate.")] = None
    previous: Annotated[Delivered | None, doc("The certificate delivered before it.")] = None
    failed_attempts: Annotated[int | None, doc("Failed attempts in a row.")] = None
    next_attempt: Annotated[datetime | None, doc("When the next attempt follows, after a failed one.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        doc(
            "Delivered: the files contain the current certificate and the hook has succeeded. Deployed: the "
            "addresses of servedAt serve it."
        ),
    ] = ()


class Delivery(Struct, frozen=True, kw_only=True):
    """A certificate as files for a server, and the hook that makes the server read them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DeliverySpec, doc("Which certificate, which files, and what runs afterwards.")]
    status: Annotated[DeliveryStatus, doc("What is delivered; written by the controllers.")] = (
        DeliveryStatus()
    )
