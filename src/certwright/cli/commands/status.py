"""`certwright status`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import completion, sections
from certwright.cli.access import Session, session
from certwright.cli.format import StatusView, echo_coloured, echo_lines, lines_of, print_content
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.resource_args import fetch, one_object
from certwright.diagnosis import deliveries, issuers, related
from certwright.diagnosis.certificates import (
    SETS_GROUP,
    Diagnosis,
    RelatedObjects,
    condition,
    diagnose,
    is_set,
    issuer_ref,
    issuer_words,
    member_words,
    name_of,
    retry_of,
)
from certwright.diagnosis.status import as_json, related_events
from certwright.diagnosis.words import age, from_now, parse_time, sentence, when
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.pki import der, pem
from certwright.resources.retry import BreakerRecord

Json = dict[str, Any]
_BOOLEAN, _EXTENSIONS = 0x01, 0xA3


_BASIC_CONSTRAINTS = der.oid("2.5.29.19")
_MOST_SHOWN = 10


async def view(here: Session, certificate: Json, now: datetime) -> StatusView:
    """The status of `certificate`. Raises the client's errors."""
    objects = await related.read_related(here.client, certificate)
    events: list[Json] = []
    unread: list[str] = []
    try:
        events = await related_events(here.client, objects)
    except errors.Forbidden:
        unread = ["(you may not read them)"]
    delivered = await deliveries.of_certificate(here.client, certificate)
    content = as_json(objects, events, now)
    content["deliveries"] = [deliveries.as_json(delivery, now) for delivery in delivered]
    lines = [f"{name_of(delivery)}: {deliveries.story(delivery, now)[0]}" for delivery in delivered]
    more = [*sections.section("Events", unread), *sections.section("Deliveries", lines)]
    return StatusView([*report(objects, events, now), *more], content)


def report(objects: RelatedObjects, events: list[Json], now: datetime) -> list[str]:
    """The lines of the diagnosis and of all objects behind it."""
    metadata = objects.certificate["metadata"]
    diagnosis = diagnose(objects, now)
    what = f"Certificate {metadata.get('namespace', '')}/{metadata['name']}"
    return [
        *sections.headline(what, diagnosis.cause, diagnosis.advice),
        *sections.section("Certificate", _certificate(objects, now)),
        *sections.section("Conditions", sections.conditions(objects.certificate, now)),
        *sections.section("Request", _request(objects, diagnosis, now)),
        *sections.section("Order", _order(objects)),
        *sections.section("Challenges", [_challenge(challenge) for challenge in objects.challenges]),
        *sections.section("Issuer", _issuer(objects)),
        *sections.section("Secret", _secret(objects)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _certificate(objects: RelatedObjects, now: datetime) -> list[str]:
    obj, record = objects.certificate, retry_of(objects.certificate)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names = [*(spec.get("dnsNames") or []), *(spec.get("ipAddresses") or []), *(spec.get("uris") or [])]
    names += spec.get("emailAddresses") or []
    return sections.fields(
        [
            ("Common name", str(spec.get("commonName", ""))),
            ("Names", ", ".join(names)),
            ("CA", _is_ca(objects)),
            ("Revision", str(status.get("revision") or "")),
            ("Not before", when(parse_time(status.get("notBefore")), now)),
            ("Not after", when(parse_time(status.get("notAfter")), now)),
            ("Renews at", when(parse_time(status.get("renewalTime")), now)),
            ("Last failure", when(parse_time(status.get("lastFailureTime")), now)),
            ("Failed attempts", str(status.get("failedIssuanceAttempts") or "")),
            ("Next attempt", when(record.next_attempt if record is not None else None, now)),
        ]
    )


def _is_ca(objects: RelatedObjects) -> str:
    """Whether the certificate in the Secret is that of a CA, where that is not a matter of course."""
    is_asked = bool((objects.certificate.get("spec") or {}).get("isCA"))
    encoded = ((objects.secret or {}).get("data") or {}).get("tls.crt", "")
    try:
        is_ca = _is_ca_certificate(pem.blocks(b64decode(encoded))[0][1])
    except (ValueError, IndexError):
        return "yes, once it is issued" if is_asked else ""
    if is_ca != is_asked:
        return f"{'yes' if is_ca else 'no'} (spec.isCA is {'true' if is_asked else 'false'})"
    return "yes" if is_ca else ""


def _is_ca_certificate(certificate: bytes) -> bool:
    """Whether a certificate (DER) has the basic constraint of a CA. Raises `ValueError` and `IndexError`.

    By its DER, because `cryptography` would take longer to load than all else that this command does.
    Source: RFC 5280 §4.1 and §4.2.1.9.
    """
    (*_, extensions) = der.read(der.read(der.read(certificate)[0].content)[0].content)
    if extensions.tag != _EXTENSIONS:
        return False
    for extension in der.read(der.read(extensions.content)[0].content):
        oid, *_, value = der.read(extension.content)
        if oid.encoded == _BASIC_CONSTRAINTS:
            constraints = der.read(der.read(value.content)[0].content)
            return bool(constraints) and constraints[0].tag == _BOOLEAN
    return False


def _request(objects: RelatedObjects, diagnosis: Diagnosis, now: datetime) -> list[str]:
    request = objects.request
    if "request" in objects.hidden:
        return ["(you may not read it)"]
    if request is None:
        return [] if diagnosis.ready else ["none yet"]
    fields = [("Name", name_of(request)), ("Sent to", member_words(request))]
    return [*sections.fields(fields), *sections.conditions(request, now)]


def _order(objects: RelatedObjects) -> list[str]:
    if "order" in objects.hidden:
        return ["(you may not read it, or its challenges)"]
    if objects.order is None:
        return []
    status = objects.order.get("status") or {}
    return sections.fields(
        [
            ("Name", name_of(objects.order)),
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


def _issuer(objects: RelatedObjects) -> list[str]:
    words = issuer_words(objects.certificate)
    if "issuer" in objects.hidden:
        return [f"{words} (you may not read it)"]
    if objects.issuer is None and is_set(issuer_ref(objects.certificate)):
        return [f"{words} (does not exist, or you may not read it)"]
    if objects.issuer is None:
        foreign = " of " in words
        return [f"{words} ({'of another program: not checked' if foreign else 'does not exist'})"]
    ready = condition(objects.issuer, "Ready")
    state = "ready" if ready.get("status") == "True" else "not ready"
    return sections.fields(
        [
            ("Name", words),
            ("State", state),
            ("Active", str(((objects.issuer.get("status") or {}).get("active") or {}).get("name", ""))),
            ("Says", sentence(str(ready.get("message", "")))),
        ]
    )


def _secret(objects: RelatedObjects) -> list[str]:
    name = str((objects.certificate.get("spec") or {}).get("secretName", ""))
    if "secret" in objects.hidden:
        return [f"{name} (you may not read it)"]
    if objects.secret is None:
        return [f"{name} (does not exist)"]
    # The Secret's former content; it has none if it was created for the Certificate.
    adopted = condition(objects.certificate, "SecretAdopted")
    former = sentence(str(adopted.get("message", ""))) if adopted.get("status") == "True" else ""
    return sections.fields(
        [
            ("Name", name),
            ("Type", str(objects.secret.get("type", ""))),
            ("Keys", ", ".join(objects.secret.get("data") or {})),
            ("Adopted", former),
        ]
    )


async def issuer_view(here: Session, issuer: Json, now: datetime) -> StatusView:
    """The status of the Issuer or ClusterIssuer. Lists the Certificates of all namespaces for a
    ClusterIssuer, or of one namespace if the user may read no other. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer)
    events = await related.events_of(here.client, issuer)
    status = issuers.status_of(issuer, certificates, requests)
    return StatusView(issuer_report(status, events[-_MOST_SHOWN:], now), issuers.as_json(status, now))


async def _referring(here: Session, issuer: Json) -> tuple[list[Json], list[Json]]:
    """The Certificates and CertificateRequests that may refer to the issuer or set: of all namespaces if it
    is of the whole cluster, and the user may list them."""
    lists: list[list[Json]] = []
    for kind in (related.CERTIFICATES, related.REQUESTS):
        namespace = here.namespace if issuer["metadata"].get("namespace") else ""
        try:
            lists.append((await here.client.list(kind, namespace)).items)
        except errors.Forbidden:
            if namespace:
                raise
            lists.append((await here.client.list(kind, here.namespace)).items)
    return lists[0], lists[1]


def issuer_report(status: issuers.IssuerStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    issuer = status.issuer
    words = f"{issuer['kind']} {issuer['metadata']['name']}"
    cause, advice = issuers.story(status, now)
    return [
        *sections.headline(words, cause, advice),
        *sections.section("Issuer", _issuer_fields(status, now)),
        *sections.section("DNS record, to create once for each DOMAIN", _persistent_record(issuer)),
        *sections.section("Circuit breaker", _breaker(status.breaker, now)),
        *sections.section("Waiting or being issued", _shortened(status.waiting)),
        *sections.section("Conditions", sections.conditions(issuer, now)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _shortened(names: Sequence[str]) -> list[str]:
    """The first of the names, and how many there are beside them."""
    more = len(names) - _MOST_SHOWN
    return [*names[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _issuer_fields(status: issuers.IssuerStatus, now: datetime) -> list[str]:
    spec, state = status.issuer.get("spec") or {}, status.issuer.get("status") or {}
    acme = spec.get("acme") or {}
    return sections.fields(
        [
            ("Type", ", ".join(str(kind) for kind in spec)),
            ("Server", str(acme.get("server", ""))),
            ("Account", str((state.get("acme") or {}).get("uri", ""))),
            ("Email", str(acme.get("email", ""))),
            ("Last success", _when(status.last_success, now)),
        ]
    )


def _persistent_record(issuer: Json) -> list[str]:
    """The record of DNS-PERSIST-01, if a solver relies on it."""
    acme = (issuer.get("status") or {}).get("acme") or {}
    record = acme.get("persistentRecord") or {}
    return sections.fields(
        [
            ("Name", str(record.get("name", ""))),
            ("Value", str(record.get("value", ""))),
            ("With wildcards", str(record.get("wildcardValue", ""))),
        ]
    )


def _breaker(breaker: BreakerRecord | None, now: datetime) -> list[str]:
    if breaker is None:
        return ["closed: no attempt has failed since the last success"]
    probe = _when(breaker.next_probe, now)
    if not probe and breaker.state == "Open":
        probe = "within seconds"
    return sections.fields(
        [
            ("State", _STATES[breaker.state]),
            ("Reason", breaker.reason),
            ("Last failure", sentence(breaker.message)),
            ("Since", _when(breaker.since, now)),
            ("Next probe", probe),
            ("Next attempt", _when(breaker.next_attempt, now)),
            ("Not before", _when(breaker.not_before, now)),
            ("Attempts", f"{issuers.recent_attempts(breaker, now)} in the last hour"),
        ]
    )


_STATES = {
    "Closed": "closed: attempts have failed, too few to stop the others",
    "Open": "open: attempts wait until the server answers a probe",
    "HalfOpen": "half-open: one attempt at a time",
}


def _when(moment: datetime | None, now: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({from_now(moment, now)})" if moment is not None else ""


async def set_view(here: Session, issuer_set: Json, now: datetime) -> StatusView:
    """The status of the IssuerSet or ClusterIssuerSet: which member signs, the state of all of them,
    and which certificates wait. Raises the client's errors."""
    certificates, requests = await _referring(here, issuer_set)
    members = await issuers.members_of(here.client, issuer_set, requests)
    events = await related.events_of(here.client, issuer_set)
    reference = {"name": issuer_set["metadata"]["name"], "kind": str(issuer_set["kind"]), "group": SETS_GROUP}
    status = issuers.SetStatus(issuer_set, members, issuers.waiting_for(reference, certificates))
    return StatusView(set_report(status, events[-_MOST_SHOWN:], now), issuers.set_as_json(status))


def set_report(status: issuers.SetStatus, events: list[Json], now: datetime) -> list[str]:
    """The lines: a sentence, the fix, and the objects behind them."""
    cause, advice = issuers.set_story(status, now)
    words = f"{status.issuer_set['kind']} {status.issuer_set['metadata']['name']}"
    rows = [("MEMBER", "STATE", "LAST SUCCESS", "MESSAGE")]
    for member in status.members:
        success = age(member.last_success, now) if member.last_success else ""
        rows.append((member.words, member.state, success, member.message))
    return [
        *sections.headline(words, cause, advice),
        *sections.section("Members", lines_of(rows)),
        *sections.section("Waiting or being issued", _shortened(status.waiting)),
        *sections.section("Conditions", sections.conditions(status.issuer_set, now)),
        *sections.section("Events", sections.events(events, now)),
    ]


async def delivery_view(here: Session, delivery: Json, now: datetime) -> StatusView:
    """The status of the Delivery. Raises the client's errors."""
    events = (await related.events_of(here.client, delivery))[-_MOST_SHOWN:]
    metadata, (cause, advice) = delivery["metadata"], deliveries.story(delivery, now)
    lines = [
        *sections.headline(f"Delivery {metadata.get('namespace', '')}/{metadata['name']}", cause, advice),
        *sections.section("Delivery", _delivery_fields(delivery, now)),
        *sections.section("Conditions", sections.conditions(delivery, now)),
        *sections.section("Events", sections.events(events, now)),
    ]
    return StatusView(lines, deliveries.as_json(delivery, now))


def _delivery_fields(delivery: Json, now: datetime) -> list[str]:
    spec, current = delivery.get("spec") or {}, (delivery.get("status") or {}).get("current") or {}
    addresses = (served.get("address", "") for served in spec.get("servedAt") or [])
    return sections.fields(
        [
            ("Of", deliveries.source_of(delivery)),
            ("Place", f"{spec.get('root', '')}:{spec.get('path', '')}"),
            ("Hook", str(spec.get("hook", ""))),
            ("Served at", ", ".join(map(str, addresses))),
            ("Delivered", when(parse_time(current.get("time")), now)),
            ("Expires", when(parse_time(current.get("notAfter")), now)),
        ]
    )


async def store_problem(client: Client) -> str:
    """Why the server's store accepts no writes, e.g. a full disk; empty if it does, or if that is unknown.

    Controllers cannot report it in the object, because that would be a write.
    Source: Kubernetes API health endpoints, "Individual health checks".
    """
    for path in ("/readyz/etcd-readiness", "/readyz"):
        try:
            await client.raw("GET", path)
            return ""
        except errors.ApiError as error:
            if error.http_status >= 500:
                # Plain text, unlike other errors of the API.
                prefix = f"HTTP status {error.http_status}: internal server error: "
                reason = sentence(error.message).removeprefix(prefix)
                return "it is not ready" if path == "/readyz" else reason
            # The first needs a right that readers of Certificates may lack.
    return ""


_VIEWS: dict[Kind[Json], Callable[[Session, Json, datetime], Awaitable[StatusView]]] = {
    related.CERTIFICATES: view,
    related.ISSUERS: issuer_view,
    related.CLUSTER_ISSUERS: issuer_view,
    related.ISSUER_SETS: set_view,
    related.CLUSTER_ISSUER_SETS: set_view,
    related.DELIVERIES: delivery_view,
}


@click.command(short_help="Show why a certificate or an issuer is (or is not) ready, and what happens next.")
@click.argument("words", nargs=-1, metavar="[KIND] NAME", shell_complete=completion.objects("certificates"))
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="JSON or YAML instead of text.")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...], output: str | None) -> None:
    """Explain the state of an object, and what happens next.

    KIND is certificate (the default), issuer, clusterissuer, issuerset, clusterissuerset or delivery;
    KIND/NAME works too. The first sentence says why the object is not ready and how to fix it, or when it
    renews. Below are the objects behind it: a certificate's request (with its order and challenges at an
    ACME server), issuer, Secret, events and Deliveries; an issuer's circuit breaker and the certificates
    that wait; a set's members. The keys of -o json are stable: see docs/commands.md.

    \b
    Examples:
      certwright status web
      certwright status cert/web -n shop -o json
      certwright status clusterissuer letsencrypt
      certwright status issuerset public -n shop
      certwright status delivery/web
    """
    if not words:
        raise click.UsageError(
            "which object? `certwright status web`, e.g.; `certwright report` is about all certificates"
        )
    kind, name = one_object(words, tuple(_VIEWS), default=related.CERTIFICATES)
    async with session(server) as here:
        live = await fetch(here, kind, name)
        # As in a list: a server may leave it out.
        live.setdefault("kind", kind.kind)
        shown = await _VIEWS[kind](here, live, datetime.now(UTC))
        is_settled = shown.content["ready"] and not shown.content.get("issuing")
        problem = "" if is_settled else await store_problem(here.client)
    if output is not None:
        print_content({**shown.content, "serverProblem": problem}, output)
        return
    warning = [f"The server cannot write: {problem}; nothing changes until it can."] if problem else []
    echo_coloured(shown.lines[0], "green" if is_settled else "yellow")
    echo_lines((*warning, *shown.lines[1:]))
