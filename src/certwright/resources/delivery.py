"""Delivery: a certificate as files on the machine of a certwright process, and the hook that runs afterwards.

The operator of that process names the root directories and hooks; an object only refers to their names. Rules
over these fields that hold whatever the operator allows are at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.kube.api.meta import Condition, ObjectMeta, Struct, doc
from certwright.resources import checks
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
    start_tls_before: Annotated[
        str, doc("The former spelling of startTLS; still read.", enum=("", "smtp", "imap", "postgres"))
    ] = field(default="", name="startTls")

    @property
    def protocol(self) -> str:
        """The protocol in which TLS begins; `tls`: TLS from the first byte."""
        return self.start_tls or self.start_tls_before or "tls"


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


_FILE_NAME: Final = re.compile(FILE_NAME)
_LONGEST_NAME: Final = 253
_LONGEST_PATH: Final = 1024
_MODE: Final = re.compile(r"0[0-7]{3}")
_NAME_RULE: Final = "write letters, digits and . _ @ + -, not beginning with a dot"


def validate_delivery(delivery: Delivery) -> list[FieldError]:
    """All errors in the object on its own."""
    spec = delivery.spec
    errors: list[FieldError] = []
    given = [ref for ref in (spec.certificate_ref, spec.secret_ref) if ref is not None]
    if not given:
        errors.append(required("spec.certificateRef", "name the Certificate, or a Secret in spec.secretRef"))
    if len(given) > 1:
        errors.append(forbidden("spec.secretRef", "there is a certificateRef already; keep one"))
    if not spec.root:
        errors.append(required("spec.root", "name a root directory of the operator (--delivery-root)"))
    if path_parts(spec.path) is None:
        why = f"must be a relative path such as nginx/web without `.`, `..` and empty parts; {_NAME_RULE}"
        errors.append(invalid("spec.path", spec.path, why))
    for number, output in enumerate(spec.outputs):
        errors += _output(output, f"spec.outputs[{number}]")
    names = [output.name for output in spec.outputs]
    if repeated := {name for name in names if names.count(name) > 1}:
        errors.append(invalid("spec.outputs", ", ".join(sorted(repeated)), "give each file its own name"))
    if len(names) > MOST_OUTPUTS:
        errors.append(invalid("spec.outputs", len(names), f"at most {MOST_OUTPUTS} files"))
    for number, served in enumerate(spec.served_at):
        if parse_address(served.address) is None:
            path = f"spec.servedAt[{number}].address"
            errors.append(invalid(path, served.address, "write HOST:PORT, e.g. www.example.com:443"))
        if served.start_tls and served.start_tls_before not in ("", served.start_tls):
            path = f"spec.servedAt[{number}].startTls"
            errors.append(forbidden(path, "it is the former spelling of startTLS, which differs; remove it"))
    return errors


def path_parts(path: str) -> Sequence[str] | None:
    """The components of a relative path; None if it could leave the root or is not in its plain form."""
    parts = path.split("/")
    return parts if len(path) <= _LONGEST_PATH and all(map(_is_file_name, parts)) else None


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`; None for anything else."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    return (host, int(port)) if host and host.isascii() and host.isprintable() and " " not in host else None


def _is_file_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _FILE_NAME.fullmatch(name) is not None


def _output(output: DeliveryOutput, path: str) -> Iterator[FieldError]:
    if not _is_file_name(output.name):
        yield invalid(f"{path}.name", output.name, f"must be a file name; {_NAME_RULE}")
    yield from checks.check_one_of(output.format, f"{path}.format", tuple(item.value for item in Format))
    if output.format in HAVE_PASSWORD:
        if output.password_secret_ref is None:
            yield required(f"{path}.passwordSecretRef", "name the Secret with the password of the key store")
        yield from checks.check_secret_key(output.password_secret_ref, f"{path}.passwordSecretRef")
    elif output.password_secret_ref is not None:
        yield forbidden(
            f"{path}.passwordSecretRef", f"only PKCS12 and JKS have a password, not {output.format}"
        )
    if not output.mode:
        return
    if not _MODE.fullmatch(output.mode):
        yield invalid(f"{path}.mode", output.mode, "must be four octal digits that begin with 0, e.g. 0640")
    elif output.format in HAVE_KEY and int(output.mode, 8) & 0o007:
        yield invalid(
            f"{path}.mode", output.mode, "must not let all users read a private key; write e.g. 0640"
        )
