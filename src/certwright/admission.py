"""Admission of our kinds on our own API server, in place of cert-manager's webhook: approval of
CertificateRequests, and checks of signing requests.

The verb `approve` on the resource `signers` of cert-manager.io allows to approve or deny. The signer is named
after the issuer: all issuers of a kind (`issuers.cert-manager.io/*`) or this one (`issuers.cert-
manager.io/NAMESPACE.NAME`). A value that cannot be encoded in a signing request, or is read back as another
one, would be accepted and never issued. The checks are here and not in `resources`, which has no
cryptography. Other API servers do not make them, so the controllers check again.

Source: cert-manager `pkg/webhook/admission/certificaterequest/approval`,
`internal/apis/certmanager/validation/certificaterequest.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from certwright.issuers.csr_plan import csr_plan
from certwright.kube.api.errors import DENIED, Details, FieldError, Forbidden, invalid
from certwright.kube.api.kinds import AnyKind
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Access, Extensions, KindExtension
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.util.decoders import convert
from certwright.kube.util.http_messages import Identity
from certwright.pki import match, names, sans, usages
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyPlan, generate
from certwright.pki.sans import NameConstraints, NameSet
from certwright.pki.signing import checked
from certwright.resources.certificate import CertificateSpec
from certwright.resources.crd_rules import known_rules
from certwright.resources.names import GROUP
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.reasons import ISSUING, MANUALLY_TRIGGERED
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, OUR_KINDS
from certwright.resources.validation import validate, warnings

_TYPES = ("Approved", "Denied")


def may_approve(access: Access, user: Identity, request: Json) -> bool:
    """Whether `user` may approve or deny `request` (a CertificateRequest); no user may where the kind of its
    issuer is not served."""
    return any(
        access.authorizer.allows(user, Action("approve", GROUP, "signers", name=name))
        for name in _signers(access, request)
    )


def check_decision(access: Access, user: Identity, new: Json, old: Json | None) -> None:
    """Return when nothing was approved or denied, or `user` may do so. Raises `Forbidden`."""
    if _decisions(new) == _decisions(old or {}) or may_approve(access, user, new):
        return
    reference = new["spec"]["issuerRef"]
    shown = " ".join(str(reference.get(part, "")) for part in ("name", "kind", "group"))
    if _signers(access, new):
        why = (
            f'status.conditions: Forbidden: user "{user.name}" does not have permissions to set '
            f"approved/denied conditions for issuer {{{shown}}}"
        )
    else:
        why = f"spec.issuerRef: Forbidden: referenced signer resource does not exist: {{{shown}}}"
    # In the words of cert-manager's webhook, with the code of a missing permission.
    details = Details(name=new["metadata"].get("name", ""), group=GROUP, kind="certificaterequests")
    raise Forbidden(f"{DENIED}{why}", details=details)


def _decisions(request: Json) -> dict[str, Json]:
    conditions = (request.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition for condition in conditions if condition.get("type") in _TYPES}


def _signers(access: Access, request: Json) -> tuple[str, ...]:
    """The names of which one must be allowed; none where the issuer's kind is not served."""
    reference = request["spec"]["issuerRef"]
    definition = access.by_kind(reference.get("group") or GROUP, reference.get("kind") or "Issuer")
    if definition is None:
        return ()
    name = reference.get("name", "")
    if definition.namespaced:
        name = f"{request['metadata'].get('namespace', '')}.{name}"
    return f"{definition.resource}/*", f"{definition.resource}/{name}"


Policy = Callable[[], OperatorPolicy | None]
"""Returns what the operator of this server allows objects to make it do at the moment; None: its controllers
run elsewhere and apply theirs."""


def certificate_kinds(policy: Policy = lambda: None) -> Extensions:
    """The extensions by group and kind."""
    return {
        (kind.group, kind.kind): _request(policy)
        if kind is CERTIFICATE_REQUESTS
        else KindExtension(
            mutate=name_renewer if kind is CERTIFICATES else KindExtension().mutate,
            validate=partial(_validate, kind, policy),
            warnings=partial(warnings, kind.kind, kind.group),
            enforced_rules=known_rules(kind.kind, kind.group),
        )
        for kind in OUR_KINDS
    }


def _validate(kind: AnyKind, policy: Policy, new: Json, old: Json | None) -> list[FieldError]:
    errors = validate(kind.kind, kind.group, new, old, policy())
    return errors if errors or kind is not CERTIFICATES else check_certificate(new, old)


def _request(policy: Policy) -> KindExtension:
    kind = CERTIFICATE_REQUESTS

    def check(new: Json, old: Json | None) -> list[FieldError]:
        errors = validate(kind.kind, kind.group, new, old, policy())
        return errors if errors or old is not None else check_request(new)

    return KindExtension(
        mutate=set_requester,
        validate=check,
        warnings=partial(warnings, kind.kind, kind.group),
        authorize=check_decision,
        enforced_rules=known_rules(kind.kind, kind.group),
    )


_PATH = "spec.request"


def set_requester(user: Identity, new: Json, old: Json | None) -> None:
    """Write the requester's identity into a new CertificateRequest, as cert-manager's webhook does."""
    spec = new.get("spec")
    if old is not None or type(spec) is not dict:
        return
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec["username"] = user.name
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra.items()}


def name_renewer(user: Identity, new: Json, old: Json | None) -> None:
    """Add the user who asks for a new certificate (`renew`) to the message of the condition that says so."""
    condition = _renewal(new)
    if condition is None:
        return
    before = _renewal(old or {})
    if before is not None and before["message"] == condition["message"]:
        return
    addition = f" by {user.name}"
    if not condition["message"].endswith(
        addition
    ):  # of the first call, where a webhook has changed the write
        condition["message"] += addition


def _renewal(certificate: Json) -> Json | None:
    """The condition that asks for a new certificate. Nothing about the object has been validated yet."""
    status = certificate.get("status")
    conditions = status.get("conditions") if type(status) is dict else None
    for each in conditions if type(conditions) is list else ():
        if type(each) is dict and type(each.get("message")) is str:
            found = (each.get("type"), each.get("status"), each.get("reason"))
            if found == (ISSUING, "True", MANUALLY_TRIGGERED):
                return each
    return None


def check_request(new: Json) -> list[FieldError]:
    """Report where the signing request cannot be parsed, was not signed with its key, or contradicts `isCA`
    or `usages`. The schema and the kind's own rules have passed before."""
    spec = new["spec"]
    try:
        pem = base64.b64decode(spec["request"])
        checked(pem, tuple(spec.get("usages") or ()), is_ca=bool(spec.get("isCA")))
    except PkiError as error:
        # The value itself would bury the sentence.
        return [FieldError(_PATH, "FieldValueInvalid", f'Invalid value: "<signing request>": {error}')]
    return []


_KEY: Final = generate(KeyPlan.of("ECDSA"))
"""Signs what is thrown away."""
_ENCODED: Final = (
    "commonName",
    "literalSubject",
    "subject",
    "dnsNames",
    "ipAddresses",
    "uris",
    "emailAddresses",
    "otherNames",
    "nameConstraints",
    "isCA",
    "usages",
    "encodeUsagesInRequest",
)
"""The fields of a spec that a signing request contains, except `signatureAlgorithm`, which depends on the
key."""
_NAMES: Final = {
    "dns_names": "dnsNames",
    "ip_addresses": "ipAddresses",
    "uris": "uris",
    "email_addresses": "emailAddresses",
}
_CONSTRAINTS: Final = {
    "dns_domains": "dnsDomains",
    "ip_ranges": "ipRanges",
    "email_addresses": "emailAddresses",
    "uri_domains": "uriDomains",
}


def check_certificate(new: Json, old: Json | None) -> list[FieldError]:
    """Report where the spec cannot be encoded in a signing request and read back equal. The schema and the
    kind's own rules have passed before. Takes 0.3 ms if such a field has changed, 15 ms with 2500 names."""
    spec = new["spec"]
    if old is not None and all(spec.get(name) == (old.get("spec") or {}).get(name) for name in _ENCODED):
        return []
    wanted = convert(spec, CertificateSpec)
    # The issuer gets the usages beside a request that does not state them.
    plan = msgspec.structs.replace(csr_plan(wanted), signature_algorithm="", encode_usages=True)
    try:
        differing = match.request_differences(read_csr(build_csr(plan, _KEY)), plan)
    except PkiError as error:
        return list(_refused(plan)) or [FieldError("spec", "FieldValueInvalid", f"Invalid value: {error}")]
    detail = "is read from the signing request in another form; write it in that of RFC 5280"
    return [invalid(f"spec.{field}", spec.get(field.partition(".")[0]), detail) for field in differing]


def _refused(plan: CsrPlan) -> Iterator[FieldError]:
    """The single values that cannot be encoded, each with its field."""
    for field, wire in _NAMES.items():
        yield from _each(f"spec.{wire}", getattr(plan, field), _alternative_name(field))
    constraints = plan.name_constraints or NameConstraints()
    for part in ("permitted", "excluded"):
        for field, wire in _CONSTRAINTS.items():
            values = getattr(getattr(constraints, part) or NameSet(), field)
            yield from _each(f"spec.nameConstraints.{part}.{wire}", values, _constraint(field))
    for field, value in (("literalSubject", plan.literal_subject), ("commonName", plan.common_name)):
        if value and (problem := _problem(names.subject_name, names.NO_SUBJECT, *_subject(field, value))):
            yield invalid(f"spec.{field}", value, problem)
    if problem := _problem(usages.extensions, plan.usages):
        yield FieldError("spec.usages", "FieldValueInvalid", f"Invalid value: {problem}")
    if problem := _problem(names.subject_name, plan.subject, "", ""):
        yield FieldError("spec.subject", "FieldValueInvalid", f"Invalid value: {problem}")


def _subject(field: str, value: str) -> tuple[str, str]:
    return ("", value) if field == "literalSubject" else (value, "")


def _alternative_name(field: str) -> Callable[[str], object]:
    return lambda value: sans.extension(msgspec.structs.replace(sans.NO_NAMES, **{field: (value,)}))


def _constraint(field: str) -> Callable[[str], object]:
    return lambda value: sans.constraints_extension(NameConstraints(permitted=NameSet(**{field: (value,)})))


def _each(path: str, values: tuple[str, ...], encode: Callable[[str], object]) -> Iterator[FieldError]:
    for number, value in enumerate(values):
        if problem := _problem(encode, value):
            yield invalid(f"{path}[{number}]", value, problem)


def _problem(encode: Callable[..., object], *values: Any) -> str:
    try:
        encode(*values)
    except PkiError as error:
        return str(error)
    return ""
