"""Annotations of Ingresses, Gateways and ListenerSets: which issuer, and which fields of the Certificate; the
settings of the shims.

Source: cert-manager documentation, "Annotated Ingress resource" and "Annotations".
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from certwright.kube.util.decoders import json_decoder
from certwright.resources import names
from certwright.resources.certificate import CertificateSpec, PrivateKeySpec, SecretTemplate, X509Subject
from certwright.resources.names import GROUP
from certwright.resources.references import IssuerReference

TLS_ACME: Final = "kubernetes.io/tls-acme"
TLS_PROTOCOLS: Final = ("HTTPS", "TLS")


class ShimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the shims. The default issuer applies to Ingresses with one of `auto_annotations`, if it
    has a name. `extra_annotations` are copied to Certificates. Listeners of `extra_protocols` use TLS, too.
    `gateways` and `listener_sets` False: these kinds are ignored."""

    issuer_name: str = ""
    issuer_kind: str = "Issuer"
    issuer_group: str = GROUP
    auto_annotations: Sequence[str] = (TLS_ACME,)
    extra_annotations: Sequence[str] = ()
    extra_protocols: Sequence[str] = ()
    gateways: bool = True
    listener_sets: bool = True

    @property
    def protocols(self) -> frozenset[str]:
        """The protocols of listeners that need certificates."""
        return frozenset((*TLS_PROTOCOLS, *self.extra_protocols))


ISSUER: Final = "cert-manager.io/issuer"
"""On an Ingress, Gateway or ListenerSet: the Issuer of its Certificates; with `…/issuer-kind` and
`…/issuer-group` another issuer."""
CLUSTER_ISSUER: Final = "cert-manager.io/cluster-issuer"
"""On an Ingress, Gateway or ListenerSet: the ClusterIssuer of its Certificates."""
DURATION: Final = "cert-manager.io/duration"
"""On an Ingress, Gateway or ListenerSet: `spec.duration` of its Certificates."""
RENEW_BEFORE: Final = "cert-manager.io/renew-before"
"""On an Ingress, Gateway or ListenerSet: `spec.renewBefore` of its Certificates."""
RENEW_BEFORE_PERCENTAGE: Final = "cert-manager.io/renew-before-percentage"
"""On an Ingress, Gateway or ListenerSet: `spec.renewBeforePercentage` of its Certificates."""
USAGES: Final = "cert-manager.io/usages"
"""On an Ingress, Gateway or ListenerSet: `spec.usages` of its Certificates, with commas between."""
REVISION_HISTORY_LIMIT: Final = "cert-manager.io/revision-history-limit"
"""On an Ingress, Gateway or ListenerSet: `spec.revisionHistoryLimit` of its Certificates."""
KEY_ALGORITHM: Final = "cert-manager.io/private-key-algorithm"
"""On an Ingress, Gateway or ListenerSet: `spec.privateKey.algorithm` of its Certificates."""
KEY_ENCODING: Final = "cert-manager.io/private-key-encoding"
"""On an Ingress, Gateway or ListenerSet: `spec.privateKey.encoding` of its Certificates."""
KEY_SIZE: Final = "cert-manager.io/private-key-size"
"""On an Ingress, Gateway or ListenerSet: `spec.privateKey.size` of its Certificates."""
KEY_ROTATION_POLICY: Final = "cert-manager.io/private-key-rotation-policy"
"""On an Ingress, Gateway or ListenerSet: `spec.privateKey.rotationPolicy` of its Certificates."""
SECRET_TEMPLATE: Final = "cert-manager.io/secret-template"  # noqa: S105 - a name, no password
"""On an Ingress, Gateway or ListenerSet: `spec.secretTemplate` of its Certificates, as JSON."""
IGNORE_TLS_LISTENERS: Final = "cert-manager.io/ignore-tls-listeners"
"""On a Gateway or ListenerSet: the names of the listeners that get no Certificate, with commas between."""
EDIT_IN_PLACE: Final = "acme.cert-manager.io/http01-edit-in-place"
"""On an Ingress: `true` has HTTP-01 challenges solved by this Ingress, not by one beside it."""
INGRESS_CLASS: Final = "acme.cert-manager.io/http01-ingress-class"
"""On an Ingress: the annotation `kubernetes.io/ingress.class` of the Ingress that solves its HTTP-01
challenges."""
INGRESS_CLASS_NAME: Final = "acme.cert-manager.io/http01-ingress-ingressclassname"
"""On an Ingress: `ingressClassName` of the Ingress that solves its HTTP-01 challenges."""
PARENT_FALLBACK: Final = "acme.cert-manager.io/http01-parentreffallback"
"""On a ListenerSet: `true` has HTTP-01 challenges solved at its Gateway."""

OVERRIDE_NAME: Final = "acme.cert-manager.io/http01-override-ingress-name"
"""On a Certificate: the HTTP-01 solver edits the Ingress of this name."""
OVERRIDE_CLASS: Final = "acme.cert-manager.io/http01-override-ingress-class"
"""On a Certificate: the HTTP-01 solver creates Ingresses with this class annotation."""
OVERRIDE_CLASS_NAME: Final = "acme.cert-manager.io/http01-override-ingress-ingressclassname"
"""On a Certificate: the HTTP-01 solver creates Ingresses with this `ingressClassName`."""
PARENT_NAME: Final = "acme.cert-manager.io/http01-parentrefname"
"""On a Certificate: the HTTP-01 solver attaches its route to the parent of this name."""
PARENT_KIND: Final = "acme.cert-manager.io/http01-parentrefkind"
"""On a Certificate: the HTTP-01 solver attaches its route to a parent of this kind."""
PARENT_NAMESPACE: Final = "acme.cert-manager.io/http01-parentrefnamespace"
"""On a Certificate: the HTTP-01 solver attaches its route to a parent in this namespace."""

_OURS: Final = re.compile(r"(acme\.)?cert-?man[a-z]*\.[a-z0-9.-]+/", re.ASCII | re.IGNORECASE)
"""The prefixes `cert-manager.io/` and `acme.cert-manager.io/`, misspelt ones included."""

FIELDS: Final[Mapping[str, str]] = {
    names.COMMON_NAME: "spec.commonName",
    names.ALT_NAMES: "spec.dnsNames",
    names.IP_SANS: "spec.ipAddresses",
    names.URI_SANS: "spec.uris",
    names.EMAIL_SANS: "spec.emailAddresses",
    DURATION: "spec.duration",
    RENEW_BEFORE: "spec.renewBefore",
    RENEW_BEFORE_PERCENTAGE: "spec.renewBeforePercentage",
    USAGES: "spec.usages",
    REVISION_HISTORY_LIMIT: "spec.revisionHistoryLimit",
    KEY_ALGORITHM: "spec.privateKey.algorithm",
    KEY_ENCODING: "spec.privateKey.encoding",
    KEY_SIZE: "spec.privateKey.size",
    KEY_ROTATION_POLICY: "spec.privateKey.rotationPolicy",
    SECRET_TEMPLATE: "spec.secretTemplate",
    names.SUBJECT_ORGANIZATIONS: "spec.subject.organizations",
    names.SUBJECT_ORGANIZATIONAL_UNITS: "spec.subject.organizationalUnits",
    names.SUBJECT_COUNTRIES: "spec.subject.countries",
    names.SUBJECT_PROVINCES: "spec.subject.provinces",
    names.SUBJECT_LOCALITIES: "spec.subject.localities",
    names.SUBJECT_STREET_ADDRESSES: "spec.subject.streetAddresses",
    names.SUBJECT_POSTAL_CODES: "spec.subject.postalCodes",
    names.SUBJECT_SERIAL_NUMBER: "spec.subject.serialNumber",
}
"""The field of a Certificate that each annotation sets."""

_KNOWN: Final = frozenset(
    {
        *FIELDS,
        ISSUER,
        CLUSTER_ISSUER,
        names.ISSUER_KIND,
        names.ISSUER_GROUP,
        IGNORE_TLS_LISTENERS,
        EDIT_IN_PLACE,
        INGRESS_CLASS,
        INGRESS_CLASS_NAME,
        PARENT_FALLBACK,
        PARENT_NAME,
        PARENT_KIND,
        PARENT_NAMESPACE,
        OVERRIDE_NAME,
        OVERRIDE_CLASS,
        OVERRIDE_CLASS_NAME,
        # On other objects; tools copy them between objects.
        names.CERTIFICATE_NAME,
        names.ISSUER_NAME,
        names.CERTIFICATE_REVISION,
        names.PRIVATE_KEY_SECRET_NAME,
        names.ISSUE_TEMPORARY_CERTIFICATE,
        names.ALLOW_DIRECT_INJECTION,
        names.INJECT_CA_FROM,
        names.INJECT_CA_FROM_SECRET,
        names.INJECT_API_SERVER_CA,
    }
)

_MOST: Final = 10
"""Misspelt annotations that are reported one by one: the search for a similar name takes 3 ms each."""
_ATTRIBUTE = re.compile(r"(?<!^)([A-Z])")
"""Where a word of a field's name begins, which is separated by `_` in Python."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class BadAnnotation(ValueError):
    """An invalid annotation; the text is one sentence with its name, value and the fix."""


def is_true(value: str) -> bool:
    """Whether Go's `strconv.ParseBool` reads it as true."""
    return value in _TRUE


def concerns_us(annotations: Mapping[str, str], auto: Iterable[str]) -> bool:
    """Whether any annotation is for the shims, misspelt ones included."""
    return any(_OURS.match(key) for key in annotations) or any(key in annotations for key in auto)


def chooses_issuer(annotations: Mapping[str, str], auto: Iterable[str]) -> bool:
    """Whether Certificates are wanted: an issuer is named, or an annotation of `auto` is true."""
    named = ISSUER in annotations or CLUSTER_ISSUER in annotations
    return named or any(is_true(annotations.get(key, "")) for key in auto)


def misspelt(annotations: Mapping[str, str]) -> list[str]:
    """A sentence for each unknown annotation with cert-manager's prefix, and one sentence for all after the
    first few."""
    unknown = sorted(key for key in annotations if key not in _KNOWN and _OURS.match(key))
    sentences = []
    for key in unknown[:_MOST]:
        near = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.8)
        fix = f"did you mean {near[0]}?" if near else "remove it"
        sentences.append(f"metadata.annotations: {key} is not an annotation of cert-manager; {fix}")
    if len(unknown) > _MOST:
        number = len(unknown) - _MOST
        sentences.append(
            f"metadata.annotations: {number} more are not annotations of cert-manager; remove them"
        )
    return sentences


def not_switches(annotations: Mapping[str, str], auto: Iterable[str]) -> list[str]:
    """A sentence for each annotation that is to be true or false, and is neither."""
    sentences = []
    for key in (EDIT_IN_PLACE, PARENT_FALLBACK, *auto):
        value = annotations.get(key)
        # cert-manager compares this one with the text "true".
        accepted = {"true"} if key == EDIT_IN_PLACE else _TRUE
        if value is not None and value not in accepted | _FALSE:
            sentences.append(f'metadata.annotations: {key}: {value!r} has no effect; write "true" or "false"')
    return sentences


def issuer_of(annotations: Mapping[str, str], options: ShimOptions) -> IssuerReference:
    """The issuer in the annotations, else the default issuer of `options`.

    The default group applies to every issuer without `…/issuer-group`, as with cert-manager. Raises
    `BadAnnotation`.
    """
    issuer, cluster_issuer = annotations.get(ISSUER), annotations.get(CLUSTER_ISSUER)
    kind, group = annotations.get(names.ISSUER_KIND), annotations.get(names.ISSUER_GROUP)
    if issuer is not None and cluster_issuer is not None:
        raise BadAnnotation(f"both {ISSUER} and {CLUSTER_ISSUER} are given; remove one of them")
    if cluster_issuer is not None:
        for key, value in ((names.ISSUER_KIND, kind), (names.ISSUER_GROUP, group)):
            if value is not None:
                raise BadAnnotation(
                    f"{CLUSTER_ISSUER} and {key} are given; remove one of them, or use {ISSUER} instead of "
                    f"{CLUSTER_ISSUER}"
                )
        kind = "ClusterIssuer"
    name = cluster_issuer if cluster_issuer is not None else issuer
    if name is None:
        return _default_issuer(options, kind, group)
    if not name:
        key = CLUSTER_ISSUER if cluster_issuer is not None else ISSUER
        raise BadAnnotation(f"{key} is empty; write the name of the issuer")
    return IssuerReference(name=name, kind=kind or "Issuer", group=group or options.issuer_group)


def _default_issuer(options: ShimOptions, kind: str | None, group: str | None) -> IssuerReference:
    if not options.issuer_name:
        raise BadAnnotation(
            f"no issuer is named, and there is no default issuer; add {ISSUER} or {CLUSTER_ISSUER}, or start "
            "certwright with --default-issuer-name"
        )
    return IssuerReference(
        name=options.issuer_name, kind=kind or options.issuer_kind, group=group or options.issuer_group
    )


def with_annotations(spec: CertificateSpec, annotations: Mapping[str, str]) -> CertificateSpec:
    """The spec with the annotations' fields set, and their names added. Raises `BadAnnotation`. Values are
    not validated otherwise."""
    given: dict[str, dict[str, Any]] = {"spec": {}, "spec.subject": {}, "spec.privateKey": {}}
    for key, path in FIELDS.items():
        if key in annotations:
            parent, _, field = path.rpartition(".")
            given[parent][_ATTRIBUTE.sub(r"_\1", field).lower()] = _value(key, path, annotations[key])
    changes = given["spec"]
    for field in ("dns_names", "ip_addresses", "uris", "email_addresses"):
        if field in changes:
            changes[field] = tuple(dict.fromkeys((*getattr(spec, field), *changes[field])))
    changes["subject"] = X509Subject(**given["spec.subject"]) if given["spec.subject"] else None
    changes["private_key"] = PrivateKeySpec(**given["spec.privateKey"]) if given["spec.privateKey"] else None
    return msgspec.structs.replace(spec, **changes)


def _value(key: str, path: str, text: str) -> Any:
    """The value of the field that the annotation sets. Raises `BadAnnotation`."""
    match path:
        case "spec.renewBeforePercentage" | "spec.revisionHistoryLimit" | "spec.privateKey.size":
            if not _NUMBER.fullmatch(text):
                raise BadAnnotation(f"{key}: {text!r} is not a whole number; write digits only, e.g. 2")
            return int(text)
        case "spec.dnsNames" | "spec.ipAddresses" | "spec.uris" | "spec.emailAddresses":
            return _split(text)
        case "spec.usages":
            if not (usages := _split(text)):
                raise BadAnnotation(f"{USAGES} is empty; name usages, or remove it")
            return usages
        case "spec.secretTemplate":
            return _template(text)
        case "spec.subject.serialNumber":
            return text
        case _ if path.startswith("spec.subject."):
            return _csv(key, text)
        case _:
            return text


class _StrictTemplate(SecretTemplate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def _template(text: str) -> SecretTemplate | None:
    try:
        given = json_decoder(_StrictTemplate).decode(text)
    except msgspec.MsgspecError as error:
        raise BadAnnotation(
            f"{SECRET_TEMPLATE} cannot be read: {error}; write JSON such as "
            '{"labels": {"app": "web"}, "annotations": {}}'
        ) from error
    if not given.labels and not given.annotations:
        return None
    return SecretTemplate(labels=given.labels, annotations=given.annotations)


def _split(text: str) -> Sequence[str]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _csv(key: str, text: str) -> Sequence[str]:
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as error:
        raise BadAnnotation(
            f'{key}: {text!r} cannot be read: {error}; write values with commas in quotes: "A, Inc.",B'
        ) from error
    return tuple(rows[0]) if rows else ()
