"""`certwright status`: `certificate` here, issuers in `issuer_status.py`, sets of them in `set_status.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import issuer_status, related, sections, set_status
from certwright.cli.access import session
from certwright.cli.diagnosis import (
    Around,
    Diagnosis,
    condition,
    diagnose,
    is_set,
    issuer_ref,
    issuer_words,
    member_words,
    name_of,
    retry_of,
)
from certwright.cli.format import at, from_now, parse_time, sentence
from certwright.cli.options import Folder, ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.resource_args import fetch

Json = dict[str, Any]
_MOST_EVENTS = 10


@click.group(
    cls=Folder, short_help="Show why a certificate or an issuer is (or is not) ready, and what happens next."
)
def command() -> None:
    """Explain the state of an object, and what happens next.

    \b
    Examples:
      certwright status certificate web -n shop
      certwright status clusterissuer letsencrypt
      certwright status issuerset public -n shop
    """


command.add_command(issuer_status.issuer)
command.add_command(issuer_status.cluster_issuer)
command.add_command(set_status.issuer_set)
command.add_command(set_status.cluster_issuer_set)


@command.command("certificate", short_help="Why a certificate is (or is not) ready.")
@click.argument("name")
@namespaced_server_options
@asynchronous
async def certificate(*, server: ServerOptions, name: str) -> None:
    """Explain the state of one certificate.

    The first sentence says why it is not ready and how to fix it, or when it renews. Below are the
    certificate, its current request (with its order and challenges at an ACME server), its issuer, its Secret
    and recent events.

    \b
    Examples:
      certwright status certificate web
      certwright status certificate api -n shop
    """
    async with session(server) as here:
        found = await fetch(here, related.CERTIFICATES, name)
        around = await related.around(here.client, found)
        events = await _events(here.client, around)
    for line in report(around, events, datetime.now(UTC)):
        click.echo(line)


async def _events(client: Any, around: Around) -> list[Json]:
    events: list[Json] = []
    for obj in (around.certificate, around.request):
        if obj is not None:
            events += await related.events_of(client, dict(obj))
    return sorted(events, key=related.last_seen)[-_MOST_EVENTS:]


def report(around: Around, events: list[Json], now: datetime) -> list[str]:
    """The lines of the diagnosis and of all objects behind it."""
    metadata = around.certificate["metadata"]
    diagnosis = diagnose(around, now)
    lines = [f"Certificate {metadata.get('namespace', '')}/{metadata['name']}: {diagnosis.cause}."]
    if diagnosis.advice:
        lines.append(f"What to do: {diagnosis.advice}.")
    return [
        *lines,
        *sections.section("Certificate", _certificate(around.certificate, now)),
        *sections.section("Conditions", sections.conditions(around.certificate, now)),
        *sections.section("Request", _request(around, diagnosis, now)),
        *sections.section("Order", _order(around)),
        *sections.section("Challenges", [_challenge(one) for one in around.challenges]),
        *sections.section("Issuer", _issuer(around)),
        *sections.section("Secret", _secret(around)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _certificate(obj: Any, now: datetime) -> list[str]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names = [*(spec.get("dnsNames") or []), *(spec.get("ipAddresses") or []), *(spec.get("uris") or [])]
    names += spec.get("emailAddresses") or []
    return sections.fields(
        [
            ("Common name", str(spec.get("commonName", ""))),
            ("Names", ", ".join(names)),
            ("CA", "yes" if spec.get("isCA") else ""),
            ("Revision", str(status.get("revision") or "")),
            ("Not before", _when(status.get("notBefore"), now)),
            ("Not after", _when(status.get("notAfter"), now)),
            ("Renews at", _when(status.get("renewalTime"), now)),
            ("Last failure", _when(status.get("lastFailureTime"), now)),
            ("Failed attempts", str(status.get("failedIssuanceAttempts") or "")),
            ("Next attempt", _next_attempt(obj, now)),
        ]
    )


def _next_attempt(obj: Any, now: datetime) -> str:
    """The next attempt by the retry record, while there is a wait."""
    record = retry_of(obj)
    moment = record.next_attempt if record is not None else None
    return f"{at(moment)} ({from_now(moment, now)})" if moment else ""


def _when(value: Any, now: datetime) -> str:
    moment = parse_time(value)
    return f"{at(moment)} ({from_now(moment, now)})" if moment else ""


def _request(around: Around, diagnosis: Diagnosis, now: datetime) -> list[str]:
    request = around.request
    if request is None:
        return [] if diagnosis.ready else ["none yet"]
    found = [("Name", name_of(request)), ("Sent to", member_words(request))]
    return [*sections.fields(found), *sections.conditions(request, now)]


def _order(around: Around) -> list[str]:
    if around.order is None:
        return []
    status = around.order.get("status") or {}
    return sections.fields(
        [
            ("Name", name_of(around.order)),
            ("State", str(status.get("state") or "not placed yet")),
            ("Reason", sentence(str(status.get("reason", "")))),
            ("URL", str(status.get("url", ""))),
        ]
    )


def _challenge(challenge: Any) -> str:
    """One line: the name, the challenge type, its state, and the reason."""
    spec, status = challenge.get("spec") or {}, challenge.get("status") or {}
    name = f"*.{spec.get('dnsName')}" if spec.get("wildcard") else str(spec.get("dnsName"))
    state = str(status.get("state") or "")
    if state in ("", "pending", "processing"):
        state = "shown" if status.get("presented") else "not shown yet"
    reason = sentence(str(status.get("reason", "")))
    return f"{name} by {spec.get('type')}: {state}" + (f" ({reason})" if reason else "")


def _issuer(around: Around) -> list[str]:
    words = issuer_words(around.certificate)
    if around.issuer is None and is_set(issuer_ref(around.certificate)):
        return [f"{words} (does not exist, or you may not read it)"]
    if around.issuer is None:
        foreign = " of " in words
        return [f"{words} ({'of another program: not checked' if foreign else 'does not exist'})"]
    ready = condition(around.issuer, "Ready")
    state = "ready" if ready.get("status") == "True" else "not ready"
    return sections.fields(
        [
            ("Name", words),
            ("State", state),
            ("Active", str(((around.issuer.get("status") or {}).get("active") or {}).get("name", ""))),
            ("Says", sentence(str(ready.get("message", "")))),
        ]
    )


def _secret(around: Around) -> list[str]:
    name = str((around.certificate.get("spec") or {}).get("secretName", ""))
    if around.secret is None:
        return [f"{name} (does not exist)"]
    keys = ", ".join((around.secret.get("data") or {}).keys())
    return sections.fields(
        [
            ("Name", name),
            ("Type", str(around.secret.get("type", ""))),
            ("Keys", keys),
            ("Adopted", _adopted(around)),
        ]
    )


def _adopted(around: Around) -> str:
    """The Secret's former content; empty if it was created for the Certificate."""
    found = condition(around.certificate, "SecretAdopted")
    return sentence(str(found.get("message", ""))) if found.get("status") == "True" else ""
