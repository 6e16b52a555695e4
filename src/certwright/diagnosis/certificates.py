"""Diagnosis of a certificate: why it is in its state, in one sentence, and how to fix it.

Works on objects as JSON, so that the diagnosis is the same on any API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from certwright.diagnosis.words import at, count, from_now, parse_time, sentence, when
from certwright.kube.util.durations import doubled
from certwright.resources import names
from certwright.resources.issuer import read_member
from certwright.resources.reasons import CA_KEY_REPLACEMENT
from certwright.resources.retry import RetryRecord, read_breaker, read_retry

_BY_ITSELF = "the self-check is repeated automatically"
_ADVICE = {
    "HTTP-01": "point port 80 of that name at the --http01-listen address or at the solver's web root",
    "TLS-ALPN-01": "point port 443 of that name at the --tlsalpn01-listen address",
    "DNS-01": "make sure that the record reaches every name server of the zone",
    "DNS-ACCOUNT-01": "make sure that the record reaches every name server of the zone",
    "DNS-PERSIST-01": "create that record once",
}


def self_check_advice(challenges: Iterable[Json]) -> str:
    """The fix for the first of these Challenges with a reason; empty if there is none."""
    for challenge in challenges:
        status = challenge.get("status") or {}
        if status.get("state") == "valid" or not status.get("reason"):
            continue
        if not status.get("presented"):
            return "fix that; it is retried automatically"
        spec = challenge.get("spec") or {}
        fix = _ADVICE.get(str(spec.get("type")), "")
        return f"{fix}; {_BY_ITSELF}" if fix and _is_self_checked(challenge) else ""
    return ""


def _is_self_checked(challenge: Json) -> bool:
    """Whether a presented proof waits for its self-check: the CA does not work on it, the solver has a
    self-check, and no error of the CA is recorded."""
    spec, status = challenge.get("spec") or {}, challenge.get("status") or {}
    if status.get("processing") or (spec.get("solver") or {}).get("waitInsteadOfSelfCheck") is not None:
        return False
    return names.ACME_PROBLEM not in ((challenge.get("metadata") or {}).get("annotations") or {})


Json = Mapping[str, Any]
OUR_GROUP = "cert-manager.io"
SETS_GROUP = "certwright.io"
_SETS = ("IssuerSet", "ClusterIssuerSet")
_REVISION = "cert-manager.io/certificate-revision"
_OTHER_KIND = {
    "Issuer": "a ClusterIssuer of that name",
    "ClusterIssuer": "an Issuer of that name in its namespace",
}
# cert-manager's defaults of --certificate-request-minimum-backoff-duration and -maximum-. Controllers with
# other settings retry at another time than stated here.
_BACKOFF_MIN = timedelta(hours=1)
_BACKOFF_MAX = timedelta(hours=32)


class Diagnosis(msgspec.Struct, frozen=True):
    """Why an object is in its state: `cause`, a sentence without its full stop; `advice`, the fix, or empty.
    `next_attempt`: after a failure, the time before which nothing changes by itself. `final`: nothing changes
    any more."""

    cause: str
    advice: str = ""
    ready: bool = False
    next_attempt: datetime | None = None
    final: bool = False

    def __str__(self) -> str:
        return f"{self.cause}; {self.advice}" if self.advice else self.cause


class RelatedObjects(msgspec.Struct, frozen=True):
    """A Certificate and the objects related to it: all that its diagnosis depends on.

    None: the object does not exist, or is an issuer of a foreign group. `order` and `challenges` exist with
    an ACME issuer. `namesake`: if the issuer does not exist, the issuer of the same name and the other kind
    (`ClusterIssuer` for `Issuer`). `hidden`: the fields among `issuer`, `request`, `secret` and `order` that
    are None because the user may not read them."""

    certificate: Json
    issuer: Json | None = None
    request: Json | None = None
    secret: Json | None = None
    order: Json | None = None
    challenges: tuple[Json, ...] = ()
    namesake: Json | None = None
    hidden: tuple[str, ...] = ()


def condition(obj: Json | None, kind: str) -> Json:
    """The condition of that type, or an empty mapping."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item.get("type") == kind), {})


def is_true(obj: Json | None, kind: str) -> bool:
    """Whether the object has the condition with status `True`."""
    return condition(obj, kind).get("status") == "True"


def retry_of(certificate: Json) -> RetryRecord | None:
    """The retry record, while no issuance is in progress; cert-manager writes none."""
    if condition(certificate, "Issuing").get("status") != "False":
        return None
    record = read_retry((certificate.get("metadata") or {}).get("annotations") or {})
    # A record of an earlier failure does not count: cert-manager has recorded the last one.
    return record if record is not None and record.failed_at == _failed_at(certificate) else None


def name_of(obj: Json) -> str:
    """`metadata.name`."""
    return str((obj.get("metadata") or {}).get("name", ""))


def certificate_revision(request: Json) -> int:
    """The revision that a CertificateRequest is for (1, 2, …); 0 if unknown."""
    text = ((request.get("metadata") or {}).get("annotations") or {}).get(_REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def issuer_words(certificate: Json) -> str:
    """The issuer as the certificate names it: `ClusterIssuer ca`, `AWSPCAIssuer x of awspca.example`."""
    ref = issuer_ref(certificate)
    tail = "" if ref["group"] == OUR_GROUP or is_set(ref) else f" of {ref['group']}"
    return f"{ref['kind']} {ref['name']}{tail}"


def is_set(ref: Mapping[str, str]) -> bool:
    """Whether the reference names an IssuerSet or ClusterIssuerSet."""
    return ref["group"] == SETS_GROUP and ref["kind"] in _SETS


def member_words(request: Json | None) -> str:
    """The member of its set that a request was sent to, and the set: `ClusterIssuer a of IssuerSet all`;
    empty where there is none."""
    member = member_ref(request or {})
    return f"{member['kind']} {member['name']} of {issuer_words(request or {})}" if member else ""


def member_ref(request: Json) -> dict[str, str]:
    """The member of its set that a request was sent to, as `issuer_ref`; empty where there is none."""
    annotations = (request.get("metadata") or {}).get("annotations") or {}
    member = read_member(annotations) if is_set(issuer_ref(request)) else None
    if member is None:
        return {}
    return {"name": member.name, "kind": member.kind_or_default, "group": member.group_or_default}


def issuer_ref(certificate: Json) -> dict[str, str]:
    """`spec.issuerRef` of a Certificate or CertificateRequest with its defaults filled in."""
    return reference_of((certificate.get("spec") or {}).get("issuerRef") or {})


def reference_of(ref: Json) -> dict[str, str]:
    """The reference to an issuer with its defaults filled in."""
    return {
        "name": str(ref.get("name", "")),
        "kind": str(ref.get("kind") or "Issuer"),
        "group": str(ref.get("group") or OUR_GROUP),
    }


def diagnose(objects: RelatedObjects, now: datetime) -> Diagnosis:
    """Diagnose one certificate."""
    certificate = objects.certificate
    if (certificate.get("metadata") or {}).get("deletionTimestamp"):
        return Diagnosis("being deleted")
    if is_true(certificate, "Ready"):
        return _ready(objects, now)
    if is_true(certificate, "Issuing"):
        return _issuing(objects)
    if condition(certificate, "Issuing").get("status") == "False" and _failed_at(certificate):
        return _failed(objects, now)
    if waiting := _waiting_for_issuer(objects, now):
        return waiting
    ready = condition(certificate, "Ready")
    if not ready:
        return Diagnosis(
            "not processed by any controller yet",
            "if this lasts, check that the controllers run (`certwright serve` without `--controllers ''`)",
        )
    return Diagnosis(f"not ready: {sentence(str(ready.get('message', '')))} ({ready.get('reason')})")


CONDITION_TYPES: Mapping[str, tuple[str, ...]] = {
    "certificates.cert-manager.io": (
        "Ready",
        "Issuing",
        "SecretAdopted",
        "Verified",
        "Exported",
        CA_KEY_REPLACEMENT,
    ),
    "certificaterequests.cert-manager.io": ("Ready", "Approved", "Denied", "InvalidRequest", "FailureCause"),
    "issuers.cert-manager.io": ("Ready",),
    "clusterissuers.cert-manager.io": ("Ready",),
    "issuersets.certwright.io": ("Ready",),
    "clusterissuersets.certwright.io": ("Ready",),
    "deliveries.certwright.io": ("Delivered", "Deployed"),
    "orders.acme.cert-manager.io": (),
    "challenges.acme.cert-manager.io": (),
    "certificatesigningrequests.certificates.k8s.io": ("Approved", "Denied", "Failed"),
    "customresourcedefinitions.apiextensions.k8s.io": (
        "Established",
        "NamesAccepted",
        "NonStructuralSchema",
        "Terminating",
        "KubernetesAPIApprovalPolicyConformant",
    ),
    "secrets": (),
    "configmaps": (),
}
"""The types of conditions of the kinds (`Kind.resource`) whose controllers are known."""


def diagnose_other(obj: Json, kind: str) -> Diagnosis:
    """Why an object of any kind lacks the condition of that type (in lower case), from its status. `final`
    for a refused request, and for a failed order or challenge."""
    status = obj.get("status") or {}
    found = next(
        (item for item in status.get("conditions") or [] if str(item.get("type", "")).lower() == kind), None
    )
    seen = (found or {}).get("observedGeneration")
    if found is None and status.get("state"):
        why = sentence(str(status.get("reason", "")))
        return Diagnosis(f"{status['state']}{f': {why}' if why else ''}")
    if found is None:
        others = [item for item in status.get("conditions") or [] if item.get("status") == "False"]
        if not others:
            return Diagnosis("not processed by any controller yet", "if this lasts, check that they run")
        found = others[0]
    elif seen is not None and seen < (obj.get("metadata") or {}).get("generation", 0):
        return Diagnosis("its last change has not been processed yet")
    message, reason = sentence(str(found.get("message", ""))), found.get("reason", "")
    is_final = (
        found.get("type") == "Ready" and reason in ("Failed", "Denied") and "request" in obj.get("spec", {})
    )
    return Diagnosis(f"{found.get('type')} is {found.get('status')} ({reason}): {message}", final=is_final)


def _ready(objects: RelatedObjects, now: datetime) -> Diagnosis:
    status = objects.certificate["status"]
    expires = parse_time(status.get("notAfter"))
    valid = f"ready, valid until {when(expires, now)}" if expires else "ready"
    if expires is not None and expires <= now:
        valid = f"expired since {when(expires, now)}"
    if is_true(objects.certificate, "Issuing"):
        issuing = _issuing(objects)
        return Diagnosis(f"{valid}, and being re-issued: {issuing.cause}", issuing.advice, ready=True)
    if _failed_at(objects.certificate) is not None:
        failed = _failed(objects, now)
        return Diagnosis(
            f"{valid}, but {failed.cause}", failed.advice, ready=True, next_attempt=failed.next_attempt
        )
    if waiting := _waiting_for_issuer(objects, now):
        return Diagnosis(f"{valid}, but {waiting.cause}", waiting.advice, ready=True)
    if is_true(objects.certificate, CA_KEY_REPLACEMENT):
        return Diagnosis(
            f"{valid}, {_renews(status, now)}, with another key, which clients that have installed this CA "
            "do not trust",
            "set spec.privateKey.rotationPolicy: Never to keep the key, or have clients install the new CA",
            ready=True,
        )
    return Diagnosis(f"{valid}, {_renews(status, now)}", ready=True)


def _renews(status: Json, now: datetime) -> str:
    renews = parse_time(status.get("renewalTime"))
    if renews is None:
        return "and is not renewed automatically"
    if renews <= now:
        return f"and due for renewal since {at(renews)}"
    return f"and renews on {when(renews, now)}"


def _issuing(objects: RelatedObjects) -> Diagnosis:
    """Issuing=True: it waits for the first missing object."""
    if blocked := _issuer_trouble(objects):
        return blocked
    request = objects.request
    if "request" in objects.hidden:
        return Diagnosis("being issued: you may not read its CertificateRequest, which says how far it is")
    if request is None or certificate_revision(request) <= int(_status(objects).get("revision") or 0):
        made = "the request" if _status(objects).get("nextPrivateKeySecretName") else "the private key"
        why = sentence(str(condition(objects.certificate, "Issuing").get("message", "")))
        return Diagnosis(f"{made} is being created" + (f" ({why})" if why else ""))
    name = f"CertificateRequest {name_of(request)}"
    if denied := condition(request, "Denied").get("message"):
        return Diagnosis(f"{name} was denied: {sentence(str(denied))}", "ask the approver of requests")
    if not is_true(request, "Approved"):
        return Diagnosis(
            f"{name} is waiting for approval",
            "if nothing approves it automatically, run "
            f"`certwright approve {name_of(request)}{_here(objects)}`",
        )
    ready = condition(request, "Ready")
    if not ready:
        return Diagnosis(f"{name} is waiting for {issuer_words(objects.certificate)} to sign it")
    if objects.order is not None and not (objects.order.get("status") or {}).get("failureTime"):
        why = sentence(str((objects.order.get("status") or {}).get("reason", "")))
        if not why:
            return Diagnosis(f"order {name_of(objects.order)} is in progress at the ACME server")
        annotations = ((objects.issuer or {}).get("metadata") or {}).get("annotations") or {}
        breaker = read_breaker(annotations)
        advice = "" if breaker is not None and breaker.is_open else self_check_advice(objects.challenges)
        return Diagnosis(f"order {name_of(objects.order)} is waiting: {why}", advice)
    message = sentence(str(ready.get("message", "")))
    return Diagnosis(f"{name} is {str(ready.get('reason', 'Pending')).lower()}: {message}")


def _issuer_trouble(objects: RelatedObjects) -> Diagnosis | None:
    ref = issuer_ref(objects.certificate)
    # An unreadable issuer is no trouble: the request reports its wait.
    if "issuer" in objects.hidden or (ref["group"] != OUR_GROUP and not (is_set(ref) and objects.issuer)):
        return None
    if objects.issuer is None:
        kind = ref["kind"]
        place = f" in namespace {_namespace(objects)}" if kind == "Issuer" else ""
        fix = "create it, or correct spec.issuerRef"
        if objects.namesake is not None:
            fix = f"{_OTHER_KIND[kind]} exists: set spec.issuerRef.kind to its kind"
        return Diagnosis(
            f"waiting for {issuer_words(objects.certificate)}, which does not exist{place}",
            f"{fix}; issuance then continues automatically",
        )
    ready = condition(objects.issuer, "Ready")
    return None if ready.get("status") == "True" else _issuer_not_ready(objects, ready)


def _namespace(objects: RelatedObjects) -> str:
    return str((objects.certificate.get("metadata") or {}).get("namespace", "default"))


def _here(objects: RelatedObjects) -> str:
    """The namespace option for a command about the certificate."""
    return f" -n {_namespace(objects)}"


def _issuer_not_ready(objects: RelatedObjects, ready: Json) -> Diagnosis:
    words, ref = issuer_words(objects.certificate), issuer_ref(objects.certificate)
    if not ready:
        return Diagnosis(f"waiting for {words}, which has not been processed yet")
    place = "" if ref["kind"] == "ClusterIssuer" else _here(objects)
    described = f"`certwright describe {ref['kind'].lower()} {ref['name']}{place}`"
    fix = f"if this does not clear up on its own, fix the issuer ({described} shows it)"
    if ref["kind"] == "ClusterIssuer" and ready.get("reason") == "ErrGetKeyPair":
        fix = (
            "the Secret must be in the namespace of --cluster-resource-namespace, kube-system by "
            f"default; {fix}"
        )
    return Diagnosis(
        f"waiting for {words}, which is not ready: {sentence(str(ready.get('message', '')))}",
        f"{fix}; issuance continues once it is ready",
    )


def _failed(objects: RelatedObjects, now: datetime) -> Diagnosis:
    certificate = objects.certificate
    failed_at = _failed_at(certificate)
    assert failed_at is not None
    attempts = max(int(_status(objects).get("failedIssuanceAttempts") or 1), 1)
    # Our controllers record the time; with cert-manager it has to be computed.
    record = retry_of(certificate) or RetryRecord()
    next_try = record.next_attempt
    if next_try is None:
        wait = doubled(_BACKOFF_MIN, attempts, cap=_BACKOFF_MAX)
        next_try = _before_the_end(certificate, min(failed_at, now), wait)
    renew = f"`certwright renew {name_of(certificate)}{_here(objects)}` retries immediately"
    # Where the issuer fails, the record says why it waits instead of what to do.
    advice = record.advice if not record.waits_for_issuer else ""
    return Diagnosis(
        f"issuance failed ({count(attempts, 'attempt')}, the last {from_now(failed_at, now)}): "
        f"{_failure(objects, record)}; {_next_try(next_try, now)}",
        advice or f"correct the cause, then {renew}",
        next_attempt=next_try,
    )


def _failure(objects: RelatedObjects, record: RetryRecord) -> str:
    """Why the last attempt failed: as its request says, else as the Certificate does."""
    ready = condition(objects.request, "Ready")
    if ready.get("reason") == "Failed":
        return sentence(str(ready.get("message", "")))
    return sentence(record.message or str(condition(objects.certificate, "Issuing").get("message", "")))


def _before_the_end(certificate: Json, failed_at: datetime, wait: timedelta) -> datetime:
    """The next attempt if no condition states it: as in `controllers`, after at most a quarter of the
    remaining lifetime of a valid certificate, and at least five minutes."""
    not_after = parse_time((certificate.get("status") or {}).get("notAfter"))
    if not_after is not None and not_after > failed_at:
        wait = min(wait, max((not_after - failed_at) / 4, timedelta(minutes=5)))
    return failed_at + wait


def _waiting_for_issuer(objects: RelatedObjects, now: datetime) -> Diagnosis | None:
    """The certificate is due, but the circuit breaker of its issuer is open."""
    issuing = condition(objects.certificate, "Issuing")
    text = str(issuing.get("message", ""))
    record = retry_of(objects.certificate) or RetryRecord()
    next_try = record.next_attempt
    if issuing.get("status") != "False":
        return None
    if next_try is None and issuing.get("reason") == "WaitingForIssuer":
        ref = issuer_ref(objects.certificate)
        place = "" if ref["kind"] == "ClusterIssuer" else _here(objects)
        shows = f"`certwright status {ref['kind'].lower()} {ref['name']}{place}`"
        return Diagnosis(
            sentence(text)[:1].lower() + sentence(text)[1:], f"{shows} shows when it is probed next"
        )
    if next_try is None:
        return None
    why = record.advice or sentence(record.message)
    waiting = f"waiting for {issuer_words(objects.certificate)}: {why}; {_next_try(next_try, now)}"
    return Diagnosis(waiting, next_attempt=next_try)


def _next_try(moment: datetime, now: datetime) -> str:
    return f"the next attempt is at {when(moment, now)}" if moment > now else "the next attempt is due"


def _failed_at(certificate: Json) -> datetime | None:
    return parse_time((certificate.get("status") or {}).get("lastFailureTime"))


def _status(objects: RelatedObjects) -> Json:
    status: Json = objects.certificate.get("status") or {}
    return status
