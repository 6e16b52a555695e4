"""The page of one certificate: why it is in its state, the chain from the object to the hosts, its history,
its content, its Events; and what its user may do to it.

Everything is read as the user. Private keys are never read: of the Secret only `tls.crt` and `ca.crt` are
used.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from certwright.dashboard.index import may
from certwright.dashboard.stream import Happening, happening_of
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import actions, deliveries, related
from certwright.diagnosis.certificates import (
    Around,
    Diagnosis,
    certificate_revision,
    condition,
    diagnose,
    is_true,
    issuer_words,
    member_words,
    name_of,
)
from certwright.diagnosis.words import parse_time, sentence, span
from certwright.kube.api import errors
from certwright.kube.api.meta import ObjectKey
from certwright.kube.api.yaml_codec import write_yaml
from certwright.pki import certificates, spki
from certwright.pki.certificates import CertificateFacts
from certwright.pki.errors import PkiError
from certwright.resources.names import GROUP

Json = Mapping[str, Any]
_MOST_EVENTS: Final = 50
_HISTORY: Final = 10
_LARGEST: Final = 128 * 1024
"""Bytes of a chain that is decoded."""
VERBS: Final = ("renew", "approve", "deny", "revoke")


class Link(msgspec.Struct, frozen=True):
    """A link of the chain from the Certificate to the hosts. `level`: `ok`, `bad`, `busy` (in progress) or
    `none` (not reached, or not known)."""

    what: str
    level: str
    words: str
    since: datetime | None = None


class Issuance(msgspec.Struct, frozen=True):
    """One issuance, from its request."""

    request: str
    revision: int
    begun: datetime | None
    ended: datetime | None
    outcome: str
    level: str
    why: str

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


def chain_of(around: Around, diagnosis: Diagnosis, delivered: Sequence[Json]) -> list[Link]:
    """The links from the Certificate to the hosts. At most one is bad: where it is broken."""
    certificate, request = around.certificate, around.request
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
        *_issuing_links(around, current, is_issuing=is_issuing, failed=failed),
        _secret_link(around, status),
        *_delivery_links(delivered),
    ]
    if diagnosis.ready and not is_issuing and not failed:
        return links
    return _with_break(links, failed=failed, blocked="" if current is not None or failed else diagnosis.cause)


def _issuing_links(around: Around, request: Json | None, *, is_issuing: bool, failed: bool) -> list[Link]:
    """From the key to the signature."""
    has_next = bool((around.certificate.get("status") or {}).get("nextPrivateKeySecretName"))
    rotation = ((around.certificate.get("spec") or {}).get("privateKey") or {}).get(
        "rotationPolicy", "Always"
    )
    done = "ok" if not is_issuing and not failed else "none"
    key = Link("Key", "ok" if has_next or request is not None else done, f"rotation policy {rotation}")
    if request is None:
        text = "not kept" if done == "ok" else ""
        return [key, *(Link(what, done, text) for what in ("Request", "Approval", "Signed"))]
    links = [key, Link("Request", "ok", name_of(request), _created(request)), _approval(request)]
    acme = _acme_links(around)
    ready = condition(request, "Ready")
    signer = member_words(request) or issuer_words(around.certificate)
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


def _acme_links(around: Around) -> list[Link]:
    if around.order is None:
        return []
    status = around.order.get("status") or {}
    state, why = str(status.get("state") or "not placed yet"), sentence(str(status.get("reason", "")))
    level = "ok" if state == "valid" else "bad" if state in ("invalid", "errored", "expired") else "none"
    links = [Link("Order", level, f"{state}{f': {why}' if why else ''}", _created(around.order))]
    for challenge in around.challenges:
        spec, seen = challenge.get("spec") or {}, challenge.get("status") or {}
        state, why = str(seen.get("state") or "pending"), sentence(str(seen.get("reason", "")))
        level = "ok" if state == "valid" else "bad" if state in ("invalid", "errored", "expired") else "none"
        words = f"{spec.get('dnsName')} by {spec.get('type')}: {state}{f' ({why})' if why else ''}"
        links.append(Link("Challenge", level, words))
    return links


def _secret_link(around: Around, status: Json) -> Link:
    name = str((around.certificate.get("spec") or {}).get("secretName", ""))
    if "secret" in around.hidden:
        return Link(
            "Secret",
            "ok" if is_true(around.certificate, "Ready") else "none",
            f"{name} (you may not read it)",
        )
    if around.secret is None:
        return Link("Secret", "none", f"{name} does not exist yet")
    keys = ", ".join(sorted(around.secret.get("data") or {}))
    level = "ok" if is_true(around.certificate, "Ready") else "none"
    return Link("Secret", level, f"{name}: {keys}", parse_time(status.get("notBefore")))


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


def _with_break(links: list[Link], *, failed: bool, blocked: str) -> list[Link]:
    """The links with the first that is not done marked as the present one, or the broken one; those after it
    are not reached."""
    place = next((number for number, link in enumerate(links) if link.level != "ok"), None)
    if place is None:
        return links
    present = links[place]
    level = "bad" if failed or present.level == "bad" or blocked else "busy"
    words = f"{present.words}; {blocked}" if blocked and present.words else blocked or present.words
    links[place] = msgspec.structs.replace(present, level=level, words=words)
    after = [
        link if link.level == "bad" else msgspec.structs.replace(link, level="none")
        for link in links[place + 1 :]
    ]
    return [*links[: place + 1], *after]


def history_of(requests: Sequence[Json]) -> list[Issuance]:
    """The issuances of these requests, newest first."""
    return [_issuance(request) for request in sorted(requests, key=certificate_revision, reverse=True)]


def _issuance(request: Json) -> Issuance:
    ready, status = condition(request, "Ready"), request.get("status") or {}
    outcome, level = str(ready.get("reason") or "Pending"), "busy"
    ended = None
    if ready.get("status") == "True":
        outcome, level, ended = "Issued", "ok", parse_time(ready.get("lastTransitionTime"))
    elif outcome in ("Failed", "Denied"):
        level, ended = "bad", parse_time(status.get("failureTime") or ready.get("lastTransitionTime"))
    decided = condition(request, "Approved") or condition(request, "Denied")
    by = str((request.get("spec") or {}).get("username") or "")
    why = (
        sentence(str(ready.get("message", "")))
        if level != "ok"
        else sentence(str(decided.get("message", "")))
    )
    return Issuance(
        name_of(request),
        certificate_revision(request),
        _created(request),
        ended,
        outcome,
        level,
        f"{why}{f' (requested by {by})' if by else ''}",
    )


def decode(around: Around) -> tuple[list[Decoded], str]:
    """The chain of the Secret, its own CA last; and why it cannot be shown, empty if it can. Takes up to some
    ten milliseconds: call it in a thread."""
    if "secret" in around.hidden:
        return [], "you may not read the Secret (the right to get it is missing)"
    data = (around.secret or {}).get("data") or {}
    if not data.get("tls.crt"):
        return [], "there is no certificate in the Secret yet"
    found: list[Decoded] = []
    try:
        for entry in ("tls.crt", "ca.crt"):
            if len(text := str(data.get(entry) or "")) > _LARGEST:
                return found, f"{entry} is too large to be shown"
            for number, facts in enumerate(certificates.read_chain(b64decode(text)) if text else ()):
                title = "CA" if entry == "ca.crt" else "Certificate" if not number else "Intermediate"
                if all(
                    facts.fingerprint.hex(":").upper() != dict(known.fields)["SHA-256"] for known in found
                ):
                    found.append(_decoded(title, facts))
    except (PkiError, ValueError) as error:
        return found, sentence(str(error))
    return found, ""


def _decoded(title: str, facts: CertificateFacts) -> Decoded:
    names = (*facts.dns_names, *facts.ip_addresses, *facts.uris, *facts.email_addresses)
    serial = facts.serial_number.to_bytes(max(1, (facts.serial_number.bit_length() + 7) // 8), "big")
    pairs = (
        ("Subject", facts.subject_text or "(none)"),
        ("Issuer", facts.issuer_text),
        ("Names", ", ".join(map(str, names))),
        ("Key", str(spki.plan_of(facts.spki) or "of an unusual kind")),
        ("Usages", ", ".join(facts.usages)),
        ("CA", "yes" if facts.is_ca else "no"),
        ("Serial number", serial.hex(":").upper()),
        ("SHA-256", facts.fingerprint.hex(":").upper()),
    )
    return Decoded(title, [pair for pair in pairs if pair[1]], facts.not_before, facts.not_after)


async def _read(visit: Visit) -> tuple[ObjectKey, dict[str, Any]]:
    """The Certificate that the path names. Raises `NotFound` also for one that the user may not see."""
    namespace, name, *_ = visit.arguments
    try:
        return ObjectKey(namespace, name), await visit.client.get(related.CERTIFICATES, name, namespace)
    except (errors.NotFound, errors.Forbidden, errors.BadRequest):
        raise errors.NotFound(f"there is no certificate {namespace}/{name} that you may see") from None


async def page(visit: Visit) -> View:
    """The page of a certificate. Raises `ApiError`."""
    key, certificate = await _read(visit)
    around = await related.around(visit.client, certificate)
    diagnosis = diagnose(around, visit.now)
    delivered = await deliveries.of_certificate(visit.client, certificate)
    requests = await related.requests_by_name(visit.client, certificate, _HISTORY)
    decoded, problem = await asyncio.to_thread(decode, around)
    shown = {
        **certificate,
        "metadata": {k: v for k, v in certificate["metadata"].items() if k != "managedFields"},
    }
    context = {
        "key": key,
        "certificate": certificate,
        "diagnosis": diagnosis,
        "level": "ok" if diagnosis.ready else "bad" if diagnosis.next_attempt else "warn",
        "chain": chain_of(around, diagnosis, delivered),
        "history": history_of(requests),
        "decoded": decoded,
        "problem": problem,
        "events": await _events(visit, certificate, around.request),
        "yaml": write_yaml(shown),
        "fix": f"{visit.command} status {key.name} -n {key.namespace}",
        "actions": await _actions(visit, key, around),
        "notice": NOTICES.get(visit.query.get("done", ""), ""),
    }
    return View(
        "certificate.html",
        context,
        live=("state", "chain", "history", "content", "events"),
        details=key.namespace,
    )


async def _events(visit: Visit, *objects: Json | None) -> list[Happening] | None:
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
        happening_of(event) for event in sorted(found, key=related.last_seen, reverse=True)[:_MOST_EVENTS]
    ]


async def _actions(visit: Visit, key: ObjectKey, around: Around) -> list[tuple[str, str]]:
    """What the user may do: the verb, and the command that does the same."""
    if visit.session is None:
        return []
    place, request = f"-n {key.namespace}", around.request
    found = []
    if await may(visit.client, "patch", GROUP, "certificates/status", key.namespace, key.name):
        found.append(("renew", f"{visit.command} renew {key.name} {place}"))
    is_open = request is not None and not is_true(request, "Approved") and not is_true(request, "Denied")
    if is_open and await may(visit.client, "patch", GROUP, "certificaterequests/status", key.namespace):
        name = name_of(request or {})
        found += [(verb, f"{visit.command} {verb} {name} {place}") for verb in ("approve", "deny")]
    is_acme = around.order is not None or "acme" in ((around.issuer or {}).get("spec") or {})
    if is_acme and around.secret is not None and visit.tools.options.revoke is not None:
        found.append(("revoke", f"{visit.command} revoke {key.name} {place}"))
    return found


NOTICES: Final = {
    "renew": "It is being issued again.",
    "approve": "The request is approved.",
    "deny": "The request is denied.",
    "revoke": "The certificate is revoked. Renew it to get another one.",
}
_QUESTIONS: Final = {
    "renew": "Issue {key} again now?",
    "approve": "Approve the request of {key}? A decision is final.",
    "deny": "Deny the request of {key}? A decision is final, and the issuance fails.",
    "revoke": "Have the CA revoke the certificate of {key}? That is final.",
}


async def confirm(visit: Visit) -> View:
    """The question before an action. Raises `ApiError`."""
    key, certificate = await _read(visit)
    verb = visit.arguments[2]
    around = await related.around(visit.client, certificate)
    request = around.request
    command = dict(await _actions(visit, key, around)).get(verb)
    if command is None:
        raise errors.Forbidden(f"you may not {verb} {key}, or there is nothing to {verb}")
    context = {
        "key": key,
        "verb": verb,
        "question": _QUESTIONS[verb].format(key=key),
        "same": command,
        "request": name_of(request) if request is not None else "",
        "reasons": actions.REVOCATION_REASONS if verb == "revoke" else (),
    }
    return View("confirm.html", context)


async def act(visit: Visit) -> str:
    """Do what the form of `confirm`, or a card of the first page, asks for. Raises `ApiError`."""
    namespace, name, verb = visit.arguments
    key = ObjectKey(namespace, name)
    await _read(visit)
    if verb == "renew":
        await actions.mark_for_renewal(visit.client, key)
    elif verb == "revoke":
        reason = visit.form.get("reason", "")
        revoke = visit.tools.options.revoke
        if revoke is None or reason not in actions.REVOCATION_REASONS:
            raise errors.BadRequest(
                f"the reason {reason!r} is none of {', '.join(actions.REVOCATION_REASONS)}"
            )
        await revoke(visit.client, namespace, name, reason)
    else:
        kind = "Approved" if verb == "approve" else "Denied"
        decision = actions.Decision(
            kind, "Dashboard", f"{kind.lower()} on the dashboard by {visit.identity.name}"
        )
        before = await actions.decide(
            visit.client, ObjectKey(namespace, visit.form.get("request", "")), decision
        )
        if before not in ("", kind):
            raise errors.Conflict(f"the request is {before.lower()} already, which is final")
    if visit.form.get("next") == "":
        return ""
    return f"certificates/{quote(namespace, safe='')}/{quote(name, safe='')}?done={verb}"


def _created(obj: Json) -> datetime | None:
    return parse_time((obj.get("metadata") or {}).get("creationTimestamp"))
