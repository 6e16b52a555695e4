"""`certwright inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import completion, sections
from certwright.cli.access import session
from certwright.cli.errors import Failed
from certwright.cli.format import echo_lines, print_content
from certwright.cli.options import ServerOptions, asynchronous, json_option, namespaced_server_options
from certwright.cli.resource_args import fetch, one_object
from certwright.diagnosis import related
from certwright.diagnosis.words import at, from_now, span, when
from certwright.kube.api.core import SECRETS
from certwright.pki import certificates, keys, spki
from certwright.pki.certificates import CertificateFacts
from certwright.pki.errors import PkiError

_KINDS = (related.SECRETS, related.CERTIFICATES)


@click.command(short_help="Show what is inside a certificate's Secret.")
@click.argument(
    "words", nargs=-1, required=True, metavar="[KIND] NAME", shell_complete=completion.objects("secrets")
)
@json_option()
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...], output: str | None) -> None:
    """Show the certificates in a Secret, and whether the private key matches them.

    KIND is secret (the default) or certificate, whose Secret is then shown; KIND/NAME works too. A name alone
    that no Secret has may be that of a Certificate. The private key itself is never shown.

    \b
    Examples:
      certwright inspect web-tls -n shop
      certwright inspect certificate/web
      certwright inspect web-tls -o json
    """
    kind, name = one_object(words, _KINDS, default=related.SECRETS)
    async with session(server) as here:
        certificate: dict[str, Any] | None = None
        if kind is related.CERTIFICATES:
            certificate = await fetch(here, related.CERTIFICATES, name)
        elif (
            len(words) == 1
            and "/" not in words[0]
            and await related.get_or_none(here.client, related.SECRETS, name, here.namespace) is None
        ):
            # The name may be that of a Certificate.
            certificate = await related.get_or_none(here.client, related.CERTIFICATES, name, here.namespace)
        if certificate is not None:
            name = str((certificate.get("spec") or {}).get("secretName", ""))
        secret = await fetch(here, SECRETS, name)
    words_of = f"{here.namespace}/{name}"
    try:
        if output is not None:
            content = {"namespace": here.namespace, "name": name, "type": secret.type, **as_json(secret.data)}
            print_content(content, output)
            return
        lines = report(secret.data, datetime.now(UTC))
    except PkiError as error:
        raise Failed(f"secret {words_of}: {error}") from error
    echo_lines([f"Secret {words_of} ({secret.type})", *lines])


def report(data: Mapping[str, bytes], now: datetime) -> list[str]:
    """The lines about `tls.crt`, `tls.key` and `ca.crt`. Raises `PkiError`."""
    chain = _chain(data)
    leaf = chain[0]
    above = [link.subject_text or "(no subject)" for link in chain[1:]]
    return [
        *sections.section("Certificate (tls.crt)", facts(leaf, now)),
        *sections.section("Chain (more of tls.crt)", above),
        *sections.section("Private key (tls.key)", [_key(data.get("tls.key"), leaf)]),
        *sections.section("CA (ca.crt)", _ca(data.get("ca.crt"), now)),
    ]


def as_json(data: Mapping[str, bytes]) -> dict[str, Any]:
    """The content of a Secret without its private key. Raises `PkiError`."""
    chain = _chain(data)
    pem = data.get("tls.key")
    key = None
    if pem is not None:
        loaded = keys.load_private_key(pem)
        belongs = keys.public_key_der(loaded) == chain[0].public_key_der
        key = {"kind": str(keys.plan_of(loaded) or ""), "belongsToCertificate": belongs}
    authorities = certificates.read_chain(data["ca.crt"]) if data.get("ca.crt") else []
    return {
        "certificate": facts_as_json(chain[0]),
        "chain": [facts_as_json(link) for link in chain[1:]],
        "privateKey": key,
        "ca": [facts_as_json(link) for link in authorities],
    }


def facts_as_json(leaf: CertificateFacts) -> dict[str, Any]:
    """One certificate, field by field; keys as in `expiring -o json`."""
    return {
        "subject": leaf.subject_text,
        "issuer": leaf.issuer_text,
        "dnsNames": leaf.dns_names,
        "ipAddresses": leaf.ip_addresses,
        "uris": leaf.uris,
        "emailAddresses": leaf.email_addresses,
        "notBefore": leaf.not_before,
        "notAfter": leaf.not_after,
        "usages": leaf.usages,
        "isCA": leaf.is_ca,
        "key": str(spki.plan_of(leaf.spki) or ""),
        "serialNumber": f"{leaf.serial_number:x}",
        "fingerprint": leaf.fingerprint.hex(),
    }


def _chain(data: Mapping[str, bytes]) -> list[CertificateFacts]:
    if "tls.crt" not in data:
        raise PkiError(f"there is no key tls.crt in it; it has {', '.join(sorted(data)) or 'no keys'}")
    return list(certificates.read_chain(data["tls.crt"]))


def facts(leaf: CertificateFacts, now: datetime) -> list[str]:
    """One certificate, field by field."""
    plan = spki.plan_of(leaf.spki)
    return sections.fields(
        [
            ("Subject", leaf.subject_text or "(none)"),
            ("Issuer", leaf.issuer_text),
            ("DNS names", ", ".join(leaf.dns_names)),
            ("IP addresses", ", ".join(leaf.ip_addresses)),
            ("URIs", ", ".join(leaf.uris)),
            ("E-mail", ", ".join(leaf.email_addresses)),
            ("Other names", ", ".join(f"{name.oid}={name.utf8_value}" for name in leaf.other_names)),
            ("Not before", when(leaf.not_before, now)),
            ("Not after", f"{at(leaf.not_after)} ({_left(leaf, now)})"),
            ("Lifetime", span(leaf.not_after - leaf.not_before)),
            ("Usages", ", ".join(leaf.usages)),
            ("CA", "yes" if leaf.is_ca else "no"),
            ("Key", str(plan) if plan else "of a kind that certwright does not make"),
            ("Serial number", _colons(_serial(leaf.serial_number))),
            ("SHA-256", _colons(leaf.fingerprint)),
        ]
    )


def _left(leaf: CertificateFacts, now: datetime) -> str:
    moment = from_now(leaf.not_after, now)
    return f"EXPIRED {moment}" if leaf.not_after <= now else moment


def _serial(number: int) -> bytes:
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


def _colons(content: bytes) -> str:
    return content.hex(":").upper()


def _key(pem: bytes | None, leaf: CertificateFacts) -> str:
    if pem is None:
        return "there is none"
    key = keys.load_private_key(pem)
    belongs = "belongs" if keys.public_key_der(key) == leaf.public_key_der else "DOES NOT BELONG"
    return f"{keys.plan_of(key) or 'unusual'}, {belongs} to the certificate"


def _ca(pem: bytes | None, now: datetime) -> list[str]:
    if not pem:
        return ["none: the issuer did not provide its CA"]
    return [
        f"{link.subject_text or '(no subject)'}, valid until {at(link.not_after)} ({_left(link, now)})"
        for link in certificates.read_chain(pem)
    ]
