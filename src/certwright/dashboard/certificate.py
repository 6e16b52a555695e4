"""The page of one certificate: the diagnosis, the chain from the object to the hosts, the history, the
content, the Events, and the actions of the user.

Everything is read as the user. Private keys are never read: only `tls.crt` and `ca.crt` of the Secret are
used.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certwright.dashboard.index import may
from certwright.dashboard.stream import StreamEntry, lines_of, stream_entry
from certwright.dashboard.visit import Done, View, Visit
from certwright.diagnosis import actions, deliveries, related
from certwright.diagnosis.certificates import (
    Diagnosis,
    RelatedObjects,
    certificate_revision,
    condition,
    diagnose,
    is_true,
    issuer_ref,
    issuer_words,
    member_words,
    name_of,
)
from certwright.diagnosis.words import parse_time, sentence, span
from certwright.kube.api import errors
from certwright.kube.api.meta import ObjectKey
from certwright.kube.api.yaml_codec import write_yaml
from certwright.kube.client.rest import Client
from certwright.pki import certificates, sans, spki
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import read_any_csr
from certwright.pki.errors import PkiError
from certwright.resources.delivery import DEFAULT_OUTPUTS
from certwright.resources.names import GROUP, LAST_APPLIED, RENEWED_BY

Json = Mapping[str, Any]
_MOST_EVENTS: Final = 50
_HISTORY: Final = 10
_TRIGGERED: Final = timedelta(minutes=10)
"""The longest time between the Event of a trigger and its request: the key is made in between."""
_MOST_DELIVERIES: Final = 50
_LARGEST: Final = 128 * 1024
"""Bytes of a chain that is decoded."""
_LASTING: Final = ("Secret", "Files", "Hosts")
_FAILED: Final = ("invalid", "errored", "expired")
_LONGEST_YAML: Final = 64 * 1024
_NO_SUBJECT: Final = "(none)"
_HIDDEN: Final = "(hidden)"


class Link(msgspec.Struct, frozen=True):
    """A link of the chain from the Certificate to the hosts. `level`: `ok`, `bad`, `busy` (in progress) or
    `none` (not reached, or not known)."""

    what: str
    level: str
    words: str
    since: datetime | None = None


class Issuance(msgspec.Struct, frozen=True):
    """One issuance, read from its request."""

    request: str
    revision: int
    begun: datetime | None
    ended: datetime | None
    outcome: str
    level: str
    words: str
    trigger: str
    by: str

    @property
    def took(self) -> str:
        """The duration in words; empty while it runs."""
        return span(self.ended - self.begun) if self.begun and self.ended else ""


class Decoded(msgspec.Struct, frozen=True):
    """A certificate of the chain, field by field."""

    title: str
    fields: Sequence[tuple[str, str]]
    not_before: datetime
    not_after: datetime

    @property
    def called(self) -> str:
        """The subject, or without one the names."""
        fields = dict(self.fields)
        return fields["Subject"] if fields["Subject"] != _NO_SUBJECT else fields.get("Names", _NO_SUBJECT)


def chain_of(objects: RelatedObjects, diagnosis: Diagnosis, delivered: Sequence[Json]) -> list[Link]:
    """The links from the Certificate to the hosts. At most one link is bad: the break."""
    certificate, request = objects.certificate, objects.request
    status, issuing = certificate.get("status") or {}, condition(certificate, "Issuing")
    is_issuing = issuing.get("status") == "True"
    failed = not is_issuing and bool(status.get("lastFailureTime"))
    revision = int(status.get("revision") or 0)
    current = (
        request
        if request is not None and (not is_issuing or certificate_revision(request) > revision)
        else None
    )
    links = [
        Link(
            "Certificate",
            "ok",
            f"generation {certificate['metadata'].get('generation', 1)}",
            _created(certificate),
        ),
        *_issuing_links(objects, current, is_issuing=is_issuing, failed=failed),
        _secret_link(objects, status),
        *_delivery_links(delivered),
    ]
    if diagnosis.ready and not is_issuing and not failed:
        return links
    why = "" if current is not None or failed else diagnosis.cause
    # What is merely being created, or has not been looked at, is not broken.
    is_blocked = bool(why and diagnosis.advice and status.get("conditions"))
    return _with_break(links, is_broken=failed or is_blocked, why=why, has_valid=diagnosis.ready)


def _issuing_links(
    objects: RelatedObjects, request: Json | None, *, is_issuing: bool, failed: bool
) -> list[Link]:
    """From the key to the signature."""
    has_next = bool((objects.certificate.get("status") or {}).get("nextPrivateKeySecretName"))
    rotation = ((objects.certificate.get("spec") or {}).get("privateKey") or {}).get(
        "rotationPolicy", "Always"
    )
    done = "ok" if not is_issuing and not failed else "none"
    key = Link("Key", "ok" if has_next or request is not None else done, f"rotation policy {rotation}")
    if request is None:
        text = "not kept" if done == "ok" else ""
        return [key, *(Link(what, done, text) for what in ("Request", "Approval", "Signed"))]
    links = [key, Link("Request", "ok", name_of(request), _created(request)), _approval(request)]
    acme = _acme_links(objects)
    ready = condition(request, "Ready")
    signer = member_words(request) or issuer_words(objects.certificate)
    if ready.get("status") == "True":
        signed = Link("Signed", "ok", f"by {signer}", parse_time(ready.get("lastTransitionTime")))
        acme = [link if link.level == "ok" else msgspec.structs.replace(link, level="none") for link in acme]
    elif ready.get("reason") in ("Failed", "Denied"):
        words = sentence(str(ready.get("message", "")))
        signed = Link("Signed", "bad", words, parse_time((request.get("status") or {}).get("failureTime")))
    else:
        signed = Link(
            "Signed", "none", sentence(str(ready.get("message", ""))) or f"{signer} has not answered yet"
        )
    return [*links, *acme, signed]


def _approval(request: Json) -> Link:
    for kind, level in (("Approved", "ok"), ("Denied", "bad")):
        if is_true(request, kind):
            found = condition(request, kind)
            words = f"{kind.lower()}: {sentence(str(found.get('message', '')))}"
            return Link("Approval", level, words, parse_time(found.get("lastTransitionTime")))
    return Link("Approval", "none", "not decided")


def _acme_links(objects: RelatedObjects) -> list[Link]:
    if objects.order is None:
        return []
    status = objects.order.get("status") or {}
    state, why = str(status.get("state") or "not placed yet"), sentence(str(status.get("reason", "")))
    challenges = [_challenge(challenge) for challenge in objects.challenges]
    # Once it is placed, its challenges show where it is, or why it has failed.
    is_failed = state in _FAILED and all(link.level != "bad" for link in challenges)
    level = "bad" if is_failed else "ok" if status.get("url") or state == "valid" else "none"
    return [
        Link("Order", level, f"{state}{f': {why}' if why else ''}", _created(objects.order)),
        *challenges,
    ]


def _challenge(challenge: Json) -> Link:
    spec, seen = challenge.get("spec") or {}, challenge.get("status") or {}
    state, why = str(seen.get("state") or "pending"), sentence(str(seen.get("reason", "")))
    level = "ok" if state == "valid" else "bad" if state in _FAILED else "none"
    name = f"*.{spec.get('dnsName')}" if spec.get("wildcard") else spec.get("dnsName")
    shown_since = parse_time(seen.get("presentedAt"))
    return Link(
        "Challenge", level, f"{name} by {spec.get('type')}: {state}{f' ({why})' if why else ''}", shown_since
    )


def _secret_link(objects: RelatedObjects, status: Json) -> Link:
    name = str((objects.certificate.get("spec") or {}).get("secretName", ""))
    if "secret" in objects.hidden:
        return Link(
            "Secret",
            "ok" if is_true(objects.certificate, "Ready") else "none",
            f"{name} (you may not read it)",
        )
    if objects.secret is None:
        return Link("Secret", "none", f"{name} does not exist yet")
    keys = ", ".join(sorted(objects.secret.get("data") or {}))
    level = "ok" if is_true(objects.certificate, "Ready") else "none"
    ready = condition(objects.request, "Ready")
    is_of_request = certificate_revision(objects.request or {}) == int(status.get("revision") or 0)
    stored = ready.get("lastTransitionTime") if is_of_request and ready.get("status") == "True" else None
    return Link("Secret", level, f"{name}: {keys}", parse_time(stored))


def _delivery_links(delivered: Sequence[Json]) -> list[Link]:
    links = []
    for what, kind in (("Files", "Delivered"), ("Hosts", "Deployed")):
        found = [(delivery, condition(delivery, kind)) for delivery in delivered]
        known = [(delivery, item) for delivery, item in found if item]
        bad = [(delivery, item) for delivery, item in known if item.get("status") == "False"]
        if not delivered:
            links.append(Link(what, "none", "no Delivery" if kind == "Delivered" else "not known"))
        elif bad:
            words = "; ".join(
                f"{name_of(delivery)}: {sentence(str(item.get('message', '')))}" for delivery, item in bad
            )
            links.append(Link(what, "bad", words, parse_time(bad[0][1].get("lastTransitionTime"))))
        else:
            words = "; ".join(
                f"{name_of(delivery)}: {sentence(str(item.get('message', '')))}" for delivery, item in known
            )
            is_done = bool(known) and all(item.get("status") == "True" for _, item in known)
            links.append(Link(what, "ok" if is_done else "none", words or "not known"))
    return links


def _with_break(links: list[Link], *, is_broken: bool, why: str, has_valid: bool) -> list[Link]:
    """The links, with the first unfinished link marked as present or broken. Later links are not reached,
    except by a valid certificate before (`has_valid`). Challenges are worked on at the same time."""
    place = next((number for number, link in enumerate(links) if link.level != "ok"), None)
    if place is None:
        return links
    present = links[place]
    level = "bad" if is_broken or present.level == "bad" else "busy"
    words = f"{present.words}; {why}" if why and present.words else why or present.words
    marked = msgspec.structs.replace(present, level=level, words=words)
    rest = [
        msgspec.structs.replace(link, level="busy")
        if link.what == present.what == "Challenge" and link.level == "none"
        else link
        if link.what == "Challenge"
        else _after(link, has_valid=has_valid)
        for link in links[place + 1 :]
    ]
    return [*links[:place], marked, *rest]


def _after(link: Link, *, has_valid: bool) -> Link:
    if link.level == "bad" or link.level == "none":
        return link
    if has_valid and link.what in _LASTING:
        return msgspec.structs.replace(link, words=f"{link.words} (still of the certificate before)")
    return msgspec.structs.replace(link, level="none")


def history_of(requests: Sequence[Json], triggers: Sequence[StreamEntry] = ()) -> list[Issuance]:
    """The issuances of these requests, newest first. `triggers`: Events of the Certificate; the last Event
    before a request is its reason."""
    ordered = sorted(requests, key=certificate_revision, reverse=True)
    return [_issuance(request, triggers) for request in ordered]


def _issuance(request: Json, triggers: Sequence[StreamEntry]) -> Issuance:
    ready, begun = condition(request, "Ready"), _created(request)
    denied = condition(request, "Denied")
    outcome, level = str(ready.get("reason") or "Pending"), "busy"
    ended = parse_time(ready.get("lastTransitionTime"))
    if ready.get("status") == "True":
        outcome, level = "Issued", "ok"
    elif outcome in ("Failed", "Denied") or denied:
        outcome, level = ("Denied" if denied else outcome), "bad"
        ended = parse_time((request.get("status") or {}).get("failureTime")) or ended
    decided = condition(request, "Approved") or denied
    words = sentence(str((ready if level != "ok" and ready else decided).get("message", "")))
    return Issuance(
        name_of(request),
        certificate_revision(request),
        begun,
        ended if level != "busy" else None,
        outcome,
        level,
        words,
        sentence(str((request["metadata"].get("annotations") or {}).get(RENEWED_BY, "")))
        or next((event.message for event in triggers if _is_trigger(event, begun)), ""),
        str((request.get("spec") or {}).get("username") or ""),
    )


def _is_trigger(event: StreamEntry, begun: datetime | None) -> bool:
    """Whether the Event says why the controllers began that issuance."""
    if event.reason != "Issuing" or event.kind != "Certificate" or event.at is None or begun is None:
        return False
    return timedelta(0) <= begun - event.at <= _TRIGGERED


def decode(objects: RelatedObjects) -> tuple[list[Decoded], str]:
    """The chain of the Secret with its CA last; if the user may not read the Secret, the chain of the
    request, which has the same certificate. And a sentence about missing parts, or empty. Takes up to some
    ten milliseconds: call it in a thread."""
    meta, spec = objects.certificate["metadata"], objects.certificate.get("spec") or {}
    name = f"Secret {spec.get('secretName', '')}"
    data: Json = (objects.secret or {}).get("data") or {}
    texts = [str(data.get(entry) or "") for entry in ("tls.crt", "ca.crt")]
    problem = "" if texts[0] else f"{name} has no certificate yet"
    if "secret" in objects.hidden:
        status = (objects.request or {}).get("status") or {}
        texts = [str(status.get(entry) or "") for entry in ("certificate", "ca")]
        problem = f"you may not get {name} in namespace {meta['namespace']}: that right is missing"
        if texts[0]:
            problem = f"this is from CertificateRequest {name_of(objects.request or {})}: {problem}"
    found: list[Decoded] = []
    for what, text in zip(("Certificate", "CA"), texts, strict=True):
        try:
            if len(text) > _LARGEST:
                raise PkiError(f"it is larger than {_LARGEST >> 10} KiB")
            chain = certificates.read_chain(b64decode(text)) if text else ()
        except (PkiError, ValueError) as error:
            problem = f"the {what} cannot be read: {sentence(str(error))}"
            continue
        known = {dict(one.fields)["SHA-256"] for one in found}
        for number, facts in enumerate(chain):
            decoded = _decoded("Intermediate" if what == "Certificate" and number else what, facts)
            if dict(decoded.fields)["SHA-256"] not in known:
                found.append(decoded)
    return found, problem


def _decoded(title: str, facts: CertificateFacts) -> Decoded:
    names = (*facts.dns_names, *facts.ip_addresses, *facts.uris, *facts.email_addresses)
    serial = facts.serial_number.to_bytes(max(1, (facts.serial_number.bit_length() + 7) // 8), "big")
    pairs = (
        ("Subject", facts.subject_text or _NO_SUBJECT),
        ("Issuer", facts.issuer_text),
        ("Names", ", ".join(map(str, names))),
        ("Key", str(spki.plan_of(facts.spki) or "of an unusual kind")),
        ("Usages", ", ".join(facts.usages)),
        ("CA", "yes" if facts.is_ca else "no"),
        ("Serial number", serial.hex(":").upper()),
        ("SHA-256", facts.fingerprint.hex(":").upper()),
    )
    return Decoded(title, [pair for pair in pairs if pair[1]], facts.not_before, facts.not_after)


async def read_certificate(visit: Visit) -> tuple[ObjectKey, dict[str, Any]]:
    """The Certificate that the path names. Raises `NotFound` also if the user may not read it."""
    namespace, name, *_ = visit.arguments
    try:
        return ObjectKey(namespace, name), await visit.client.get(related.CERTIFICATES, name, namespace)
    except (errors.NotFound, errors.Forbidden, errors.BadRequest):
        raise errors.NotFound(f"there is no certificate {namespace}/{name} that you may see") from None


class Delivered(msgspec.Struct, frozen=True):
    """A Delivery of the certificate. `hosts`: the addresses that should serve it; `current`: the fingerprint
    of the delivered certificate."""

    name: str
    level: str
    words: str
    advice: str
    place: str
    files: str
    hook: str
    hosts: str
    current: str


def delivered_of(delivery: Json, now: datetime) -> Delivered:
    """A Delivery as the page shows it."""
    spec, current = delivery.get("spec") or {}, (delivery.get("status") or {}).get("current") or {}
    facts, (words, advice) = deliveries.as_json(dict(delivery), now), deliveries.story(dict(delivery), now)
    outputs = [f"{one.get('name')} ({one.get('format')})" for one in spec.get("outputs") or ()]
    outputs = outputs or [f"{one.name} ({one.format})" for one in DEFAULT_OUTPUTS]
    return Delivered(
        name_of(delivery),
        "ok" if facts["ready"] else "bad" if "False" in (facts["delivered"], facts["deployed"]) else "busy",
        words,
        advice,
        f"{spec.get('root', '')}:{spec.get('path', '')}",
        ", ".join(outputs),
        str(spec.get("hook", "")),
        ", ".join(str(one.get("address", "")) for one in spec.get("servedAt") or ()),
        ":".join(re.findall("..", str(current.get("fingerprint", "")).upper())),
    )


async def _deliveries(visit: Visit, certificate: Json) -> tuple[list[dict[str, Any]], int]:
    """The Deliveries of the Certificate that the user may read, and the number of others."""
    meta, secret = certificate["metadata"], str((certificate.get("spec") or {}).get("secretName", ""))
    await visit.index.wait_synced()
    found: list[dict[str, Any]] = []
    hidden = 0
    for name in visit.index.deliveries_of(meta["namespace"], meta["name"], secret)[:_MOST_DELIVERIES]:
        try:
            found.append(await visit.client.get(related.DELIVERIES, name, meta["namespace"]))
        except errors.Forbidden:
            hidden += 1
        except errors.NotFound:
            continue
    return found, hidden


def _yaml(certificate: Json) -> str:
    """The YAML of the object; empty where it is too long for a page."""
    text = write_yaml(shown(certificate))
    return text if len(text) <= _LONGEST_YAML else ""


def shown(certificate: Json) -> dict[str, Any]:
    """The object without `managedFields`, without the copy in `kubectl apply`'s annotation, and without the
    passwords of keystores, which may be in plain text."""
    meta, spec = dict(certificate["metadata"]), dict(certificate.get("spec") or {})
    meta.pop("managedFields", None)
    notes = {key: value for key, value in (meta.get("annotations") or {}).items() if key != LAST_APPLIED}
    meta = {**meta, "annotations": notes} if notes else {k: v for k, v in meta.items() if k != "annotations"}
    if keystores := spec.get("keystores"):
        spec["keystores"] = {
            kind: {**store, "password": _HIDDEN} if "password" in store else store
            for kind, store in keystores.items()
        }
    return {**certificate, "metadata": meta, "spec": spec}


async def page(visit: Visit) -> View:
    """The page of a certificate. Raises `ApiError`."""
    key, certificate = await read_certificate(visit)
    objects = await visit.related_objects(certificate)
    diagnosis = diagnose(objects, visit.now)
    delivered, hidden = await _deliveries(visit, certificate)
    history: list[dict[str, Any]] = []
    if "request" not in objects.hidden:
        history = await related.requests_by_name(visit.client, certificate, _HISTORY)
        if objects.request is not None and all(name_of(one) != name_of(objects.request) for one in history):
            history.append(dict(objects.request))
    events = await _events(visit, certificate, objects.request, objects.order)
    decoded, problem = await asyncio.to_thread(decode, objects)
    chain = chain_of(objects, diagnosis, delivered)
    broken = next((link for link in chain if link.level == "bad"), None)
    is_troubled = broken is not None or bool((certificate.get("status") or {}).get("lastFailureTime"))
    level = "bad" if diagnosis.next_attempt else "warn"
    expires = parse_time((certificate.get("status") or {}).get("notAfter"))
    if diagnosis.ready:
        level = "warn" if is_troubled else "ok"
    if expires is not None and expires <= visit.now:
        level = "bad"
    context = {
        "key": key,
        "diagnosis": diagnosis,
        "level": level,
        "chain": chain,
        "broken": broken,
        "history": history_of(history, events or ()),
        "may_read_requests": "request" not in objects.hidden,
        "kept": (certificate.get("spec") or {}).get("revisionHistoryLimit") or 1,
        "decoded": decoded,
        "problem": problem,
        "deliveries": [delivered_of(one, visit.now) for one in delivered],
        "hidden": hidden,
        "events": events,
        "lines": await lines_of(visit, f"Certificate/{key}"),
        "yaml": _yaml(certificate),
        "command_of_yaml": f"{visit.command} get certificate {key.name} -n {key.namespace} -o yaml",
        "fix": _fix(visit, key, objects, diagnosis),
        "actions": await _actions(visit, key, objects),
    }
    return View(
        "certificate.html",
        context,
        live=("state", "actions", "chain", "history", "content", "deliveries", "events", "lines"),
        details=key.namespace,
    )


async def _events(visit: Visit, *objects: Json | None) -> list[StreamEntry] | None:
    """Events about the objects, newest first; None where they may not be read."""
    try:
        found = [
            event
            for obj in objects
            if obj is not None
            for event in await related.events_of(visit.client, dict(obj))
        ]
    except errors.Forbidden:
        return None
    return [
        stream_entry(event) for event in sorted(found, key=related.last_seen, reverse=True)[:_MOST_EVENTS]
    ]


def _is_open(request: Json | None) -> bool:
    """Whether the request waits for a decision."""
    return request is not None and not is_true(request, "Approved") and not is_true(request, "Denied")


def _fix(visit: Visit, key: ObjectKey, objects: RelatedObjects, diagnosis: Diagnosis) -> str:
    """The command for what comes next; empty if nothing has to be done."""
    place = f"-n {key.namespace}"
    if is_true(objects.certificate, "Issuing") and _is_open(objects.request):
        return f"{visit.command} approve {name_of(objects.request or {})} {place}"
    if diagnosis.ready and not diagnosis.advice:
        return ""
    verb = "renew" if diagnosis.next_attempt is not None else "status"
    return f"{visit.command} {verb} {key.name} {place}"


class Action(msgspec.Struct, frozen=True):
    """A possible action of the user: the verb, the button's words, and the command with the same effect."""

    verb: str
    label: str
    command: str


async def _actions(visit: Visit, key: ObjectKey, objects: RelatedObjects) -> list[Action]:
    """What the user may do, as the API answers."""
    options = visit.tools.options
    if visit.session is None or options.read_only:
        return []
    place, certificate, request = f"-n {key.namespace}", objects.certificate, objects.request
    found = []
    if await may(visit.client, "patch", GROUP, "certificates/status", key.namespace, key.name):
        fails = is_true(certificate, "Issuing") or bool(
            (certificate.get("status") or {}).get("lastFailureTime")
        )
        label = "Retry now" if fails else "Renew now"
        found.append(Action("renew", label, f"{visit.command} renew {key.name} {place}"))
    if request is not None and _is_open(request) and await _may_decide(visit.client, request):
        for verb in ("approve", "deny"):
            command = f"{visit.command} {verb} {name_of(request)} {place}"
            found.append(Action(verb, f"{verb.capitalize()} the request", command))
    is_acme = objects.order is not None or "acme" in ((objects.issuer or {}).get("spec") or {})
    has_certificate = bool(((objects.secret or {}).get("data") or {}).get("tls.crt"))
    if is_acme and has_certificate and options.revoke is not None:
        found.append(Action("revoke", "Revoke", f"{visit.command} revoke {key.name} {place} --reason REASON"))
    return found


async def _may_decide(client: Client, request: Json) -> bool:
    """Whether the user may approve or deny the request. Source: cert-manager documentation,
    "CertificateRequest", "Approval RBAC"."""
    meta, ref = request["metadata"], issuer_ref(request)
    if not await may(client, "patch", GROUP, "certificaterequests/status", meta["namespace"], meta["name"]):
        return False
    kind = f"{ref['kind'].lower()}s.{ref['group']}"
    name = ref["name"] if ref["kind"].startswith("Cluster") else f"{meta['namespace']}.{ref['name']}"
    return await may(client, "approve", GROUP, "signers", name=f"{kind}/*") or await may(
        client, "approve", GROUP, "signers", name=f"{kind}/{name}"
    )


_REASONS: Final = {
    "unspecified": "no reason is given",
    "keyCompromise": "the private key has leaked, or may have",
    "affiliationChanged": "the names belong to another organization now",
    "superseded": "another certificate replaces it",
    "cessationOfOperation": "the service has ended",
    "privilegeWithdrawn": "a right that it states has been withdrawn",
}
"""In words. Source: RFC 5280 §5.3.1; CA/Browser Forum Baseline Requirements §4.9.1."""
_QUESTIONS: Final = {
    "renew": "Issue {key} again now?",
    "approve": "Approve the request of {key}?",
    "deny": "Deny the request of {key}?",
    "revoke": "Have the CA revoke the certificate of {key}?",
}
_EFFECTS: Final = {
    "renew": "The controllers request another certificate; the present one stays in its Secret until then. A "
    "backoff ends, but not a wait until a time that the CA has named.",
    "approve": "The issuer may then sign it. A decision is final.",
    "deny": "The issuance fails, and is retried with another request later. A decision is final.",
    "revoke": "That is final, and clients that check it refuse the certificate from then on. No object "
    "changes: renew the certificate afterwards.",
}


def asked_of(request: Json, certificate: Json) -> tuple[list[tuple[str, str]], str]:
    """The fields of a CertificateRequest, and how they differ from its Certificate (empty: they do not). A
    user who may create requests may create a different request in the Certificate's name."""
    spec, wanted = request.get("spec") or {}, certificate.get("spec") or {}
    fields = [
        ("Request", name_of(request)),
        ("Requested by", str(spec.get("username") or "")),
        ("Issuer", issuer_words(dict(request))),
        ("Duration", str(spec.get("duration") or "")),
    ]
    try:
        csr = read_any_csr(b64decode(str(spec.get("request") or "")))
    except (PkiError, ValueError) as error:
        return fields, f"its signing request cannot be read: {sentence(str(error))}"
    names = [*csr.dns_names, *csr.ip_addresses, *csr.uris, *csr.email_addresses]
    usages = ", ".join(csr.usages or spec.get("usages") or ())
    is_ca = bool(csr.is_ca or spec.get("isCA"))
    fields += [
        ("Subject", csr.subject_text),
        ("Names", ", ".join(map(str, names))),
        ("Usages", usages),
        ("CA", "yes" if is_ca else "no"),
    ]
    kinds = ("dnsNames", "ipAddresses", "uris", "emailAddresses")
    allowed = {_canonical(str(name)) for kind in kinds for name in wanted.get(kind) or ()}
    allowed.add(_canonical(str(wanted.get("commonName") or "")))
    others = [str(name) for name in names if _canonical(str(name)) not in allowed]
    differences = [f"the names {', '.join(others)}"] if others else []
    differences += ["a CA certificate"] if is_ca and not wanted.get("isCA") else []
    differences += ["another issuer"] if issuer_ref(dict(request)) != issuer_ref(dict(certificate)) else []
    words = f"it asks for {' and '.join(differences)}, which its Certificate does not have"
    return [pair for pair in fields if pair[1]], words if differences else ""


def _canonical(name: str) -> str:
    """The name in the form of signing requests, for comparisons."""
    try:
        return sans.canonical_ip(name)
    except PkiError:
        return sans.canonical_dns_name(name)


async def confirm(visit: Visit) -> View:
    """The question before an action. Raises `ApiError`."""
    key, certificate = await read_certificate(visit)
    verb = visit.arguments[2]
    objects = await visit.related_objects(certificate)
    action = next((one for one in await _actions(visit, key, objects) if one.verb == verb), None)
    if action is None:
        raise errors.Forbidden(f"you may not {verb} {key}, or there is nothing to {verb}")
    asked, warning = list[tuple[str, str]](), ""
    if verb == "renew":
        warning = actions.ca_warning(certificate)
    elif verb != "revoke":
        asked, warning = asked_of(objects.request or {}, certificate)
    context = {
        "key": key,
        "verb": verb,
        "asked": asked,
        "action": action,
        "question": _QUESTIONS[verb].format(key=key),
        "effect": _EFFECTS[verb],
        "warning": warning,
        "request": name_of(objects.request) if objects.request is not None else "",
        "reasons": _REASONS if verb == "revoke" else {},
    }
    return View("confirm.html", context)


async def act(visit: Visit) -> Done:
    """Do what the form of `confirm`, or a card of the first page, asks for. Raises `ApiError`."""
    namespace, name, verb = visit.arguments
    key, certificate = await read_certificate(visit)
    said = await _ACTS[verb](visit, key, certificate)
    is_of_overview = visit.form.get("next") == ""
    page_of_it = f"certificates/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return Done("" if is_of_overview else page_of_it, said)


async def _renew(visit: Visit, key: ObjectKey, certificate: Json) -> str:
    objects = await visit.related_objects(certificate)

    async def waits(_: dict[str, Any]) -> list[Json]:
        return [obj for obj in (objects.order, *objects.challenges) if obj is not None]

    done = await actions.renew(visit.client, key, waits, now=visit.now)
    return f"{done.sentence}. {done.warning}".strip()


async def _decide(visit: Visit, kind: str, certificate: Json) -> str:
    request = (await visit.related_objects(certificate)).request
    name = visit.form.get("request", "")
    if request is None or name_of(request) != name:
        raise errors.Conflict(f"the certificate's request is not {name!r} any more: look at its page again")
    message = f'manually {kind.lower()} on the dashboard by "{visit.identity.name}"'
    decision = actions.Decision(kind, actions.DECISION_REASON, message)
    place = ObjectKey(certificate["metadata"]["namespace"], name)
    before = await actions.decide(visit.client, place, decision)
    if before not in ("", kind):
        raise errors.Conflict(f"CertificateRequest {place} is {before.lower()} already, which is final")
    return f"CertificateRequest {place} is {kind.lower()}{' already' if before else ''}."


async def _approve(visit: Visit, _key: ObjectKey, certificate: Json) -> str:
    return await _decide(visit, "Approved", certificate)


async def _deny(visit: Visit, _key: ObjectKey, certificate: Json) -> str:
    return await _decide(visit, "Denied", certificate)


async def _revoke(visit: Visit, key: ObjectKey, _certificate: Json) -> str:
    reason, revoke = visit.form.get("reason", ""), visit.tools.options.revoke
    if revoke is None:
        raise errors.Forbidden("this process cannot revoke certificates")
    if reason not in actions.REVOCATION_REASONS:
        raise errors.BadRequest(f"choose one of the reasons {', '.join(actions.REVOCATION_REASONS)}")
    serial = await revoke(visit.client, key.namespace, key.name, reason)
    after = "; make sure that its key is replaced (privateKey.rotationPolicy: Always)"
    return (
        f"Certificate {serial} of {key} is revoked. Renew it to get another one"
        f"{after if reason == 'keyCompromise' else ''}."
    )


_ACTS: Final = {"renew": _renew, "approve": _approve, "deny": _deny, "revoke": _revoke}


def _created(obj: Json) -> datetime | None:
    return parse_time((obj.get("metadata") or {}).get("creationTimestamp"))
