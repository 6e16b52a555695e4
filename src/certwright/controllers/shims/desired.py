"""The Certificates that an Ingress, Gateway or ListenerSet needs for its TLS settings: the names of each
Secret. No I/O."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple

import msgspec

from certwright.controllers.shims import annotations as known
from certwright.controllers.shims.annotations import IGNORE_TLS_LISTENERS, BadAnnotation, ShimOptions
from certwright.kube.api.errors import FieldError, invalid, not_supported, required
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectMeta, OwnerReference
from certwright.kube.util.durations import parse_duration
from certwright.resources import certificate_rules, names
from certwright.resources.certificate import Certificate, CertificateSpec
from certwright.resources.ingress import Gateway, Ingress, IngressLike, Listener, ListenerSet, SecretReference
from certwright.resources.references import IssuerReference


class TlsSettings(NamedTuple):
    """The hosts by their Secret, and why others are left out."""

    hosts: Mapping[str, Sequence[str]]
    errors: Sequence[FieldError]


def read_settings(source: IngressLike, protocols: frozenset[str]) -> TlsSettings:
    """The TLS settings of the object. `protocols`: the listeners' protocols that need certificates."""
    return _of_ingress(source) if isinstance(source, Ingress) else _of_listeners(source, protocols)


def size_of(source: IngressLike) -> int:
    """The number of hosts, Secrets, listeners, and values in lists of annotations."""
    listed = sum(text.count(",") for text in source.metadata.annotations.values())
    if isinstance(source, Ingress):
        return listed + sum(1 + len(tls.hosts) for tls in source.spec.tls)
    references = (len(listener.tls.certificate_refs) for listener in source.spec.listeners if listener.tls)
    return listed + len(source.spec.listeners) + sum(references)


def secrets_of(source: IngressLike) -> frozenset[str]:
    """All Secrets that the object names in its own namespace."""
    if isinstance(source, Ingress):
        return frozenset(tls.secret_name for tls in source.spec.tls if tls.secret_name)
    settings = (listener.tls for listener in source.spec.listeners if listener.tls is not None)
    return frozenset(reference.name for tls in settings for reference in tls.certificate_refs)


def _of_ingress(ingress: Ingress) -> TlsSettings:
    hosts: dict[str, Sequence[str]] = {}
    errors: list[FieldError] = []
    if not ingress.spec.tls:
        errors.append(required("spec.tls", "list hosts and the Secret for their certificate"))
    uses = Counter(tls.secret_name for tls in ingress.spec.tls)
    for place, tls in enumerate(ingress.spec.tls):
        path = f"spec.tls[{place}]"
        if not tls.secret_name:
            errors.append(required(f"{path}.secretName", "name the Secret for key and certificate"))
        elif uses[tls.secret_name] > 1:
            advice = "several entries of spec.tls name this Secret; put their hosts into one of them"
            errors.append(invalid(f"{path}.secretName", tls.secret_name, advice))
        elif not tls.hosts:
            errors.append(required(f"{path}.hosts", "list the names that the certificate is for"))
        else:
            hosts[tls.secret_name] = tls.hosts
    return TlsSettings(hosts, errors)


def _of_listeners(source: IngressLike, protocols: frozenset[str]) -> TlsSettings:
    assert not isinstance(source, Ingress)
    ignored = {name.strip() for name in source.metadata.annotations.get(IGNORE_TLS_LISTENERS, "").split(",")}
    hosts: dict[str, list[str]] = {}
    errors: list[FieldError] = []
    for place, listener in enumerate(source.spec.listeners):
        tls = listener.tls
        # Plain: it needs no certificate, and names none.
        is_plain = listener.protocol not in protocols and (tls is None or not tls.certificate_refs)
        if listener.name in ignored or is_plain or (tls is not None and tls.mode == "Passthrough"):
            continue
        wrong = _check(listener, f"spec.listeners[{place}]", source.metadata.namespace, protocols)
        if wrong:
            errors += wrong
            continue
        assert tls is not None
        assert listener.hostname
        for reference in tls.certificate_refs:
            hosts.setdefault(reference.name, []).append(listener.hostname)
    unknown = ignored - {listener.name for listener in source.spec.listeners} - {""}
    if unknown:
        errors.append(
            invalid(
                "metadata.annotations",
                ", ".join(sorted(unknown)),
                f"{IGNORE_TLS_LISTENERS} names listeners that do not exist; write names of spec.listeners",
            )
        )
    return TlsSettings(hosts, errors)


def _check(listener: Listener, path: str, namespace: str, protocols: frozenset[str]) -> list[FieldError]:
    if listener.protocol not in protocols:
        advice = "no TLS as far as certwright knows; start it with --gateway-api-extra-protocols if it is"
        return [invalid(f"{path}.protocol", listener.protocol, advice)]
    errors = []
    if not listener.hostname:
        errors.append(required(f"{path}.hostname", "write the name that the certificate is for"))
    tls = listener.tls
    if tls is None:
        return [*errors, required(f"{path}.tls", "name the Secret in tls.certificateRefs")]
    if not tls.certificate_refs:
        errors.append(required(f"{path}.tls.certificateRefs", "name the Secret for key and certificate"))
    for place, reference in enumerate(tls.certificate_refs):
        errors += _check_reference(reference, f"{path}.tls.certificateRefs[{place}]", namespace)
    if tls.mode not in (None, "", "Terminate"):
        errors.append(not_supported(f"{path}.tls.mode", tls.mode, ("Terminate", "Passthrough")))
    return errors


def _check_reference(reference: SecretReference, path: str, namespace: str) -> list[FieldError]:
    errors = []
    if reference.group not in ("", "core"):
        errors.append(not_supported(f"{path}.group", reference.group, ("",)))
    if reference.kind not in ("", "Secret"):
        errors.append(not_supported(f"{path}.kind", reference.kind, ("Secret",)))
    if not reference.name:
        errors.append(required(f"{path}.name", "name the Secret for key and certificate"))
    if reference.namespace not in (None, "", namespace):
        errors.append(
            invalid(
                f"{path}.namespace",
                reference.namespace,
                f"the Secret of another namespace is not written; leave the field out, or write {namespace}",
            )
        )
    return errors


APPLYSET_LABEL: Final = "applyset.kubernetes.io/part-of"
"""Not copied: `kubectl apply --prune` would delete the Certificate (cert-manager #7306)."""
_USAGES: Final = ("digital signature", "key encipherment")
_OWN_ANNOTATIONS: Final = frozenset(
    {
        known.OVERRIDE_NAME,
        known.OVERRIDE_CLASS,
        known.OVERRIDE_CLASS_NAME,
        known.PARENT_NAME,
        known.PARENT_KIND,
        known.PARENT_NAMESPACE,
        names.ISSUE_TEMPORARY_CERTIFICATE,
    }
)


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The Certificates to create or keep, by name, and the reasons why others cannot be made. `secrets`: all
    Secrets that the object names; its Certificates for other Secrets are deleted. None: none is deleted, and
    no `issuer` was found."""

    certificates: Mapping[str, Certificate] = msgspec.field(default_factory=dict)
    problems: Sequence[str] = ()
    secrets: frozenset[str] | None = None
    issuer: IssuerReference | None = None


def desired_for(
    kind: AnyKind, source: IngressLike, inherited: Mapping[str, str], options: ShimOptions
) -> Desired | None:
    """The Certificates that the object needs; None if it requests no certificates. `inherited`: the
    annotations of a ListenerSet's Gateway, which name its issuer if its own do not."""
    annotations = source.metadata.annotations
    auto = options.auto_annotations if isinstance(source, Ingress) else ()
    mistakes = [*known.misspelt(annotations), *known.not_switches(annotations, auto)]
    settings = read_settings(source, options.protocols)
    if not known.chooses_issuer({**inherited, **annotations}, auto):
        # Only an annotation that is not understood may be an issuer's.
        return Desired(problems=mistakes) if mistakes else None
    try:
        chosen = annotations if known.chooses_issuer(annotations, auto) else inherited
        issuer = known.issuer_of(chosen, options)
        made = {
            secret: _certificate(kind, source, secret, hosts, issuer, options)
            for secret, hosts in settings.hosts.items()
        }
    except BadAnnotation as error:
        return Desired(problems=(*mistakes, f"metadata.annotations: {error}"))
    problems = [*mistakes, *map(str, settings.errors)]
    good = {}
    for secret, certificate in made.items():
        wrong = certificate_rules.validate(certificate)
        problems += [f"Certificate {secret}: {_with_annotation(error, annotations)}" for error in wrong]
        if not wrong:
            good[secret] = certificate
    return Desired(
        certificates=good,
        problems=list(dict.fromkeys(problems)),
        secrets=secrets_of(source),
        issuer=issuer,
    )


def _certificate(
    kind: AnyKind,
    source: IngressLike,
    secret: str,
    hosts: Sequence[str],
    issuer: IssuerReference,
    options: ShimOptions,
) -> Certificate:
    """The Certificate for one Secret. Raises `BadAnnotation`."""
    meta = source.metadata
    owner = OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    spec = CertificateSpec(
        dns_names=tuple(dict.fromkeys(host for host in hosts if _address(host) is None)),
        ip_addresses=tuple(host for host in hosts if _address(host) is not None),
        secret_name=secret,
        issuer_ref=issuer,
        usages=_USAGES,
    )
    spec = known.with_annotations(spec, meta.annotations)
    copied = {key: meta.annotations[key] for key in options.extra_annotations if key in meta.annotations}
    return Certificate(
        metadata=ObjectMeta(
            name=secret,
            namespace=meta.namespace,
            labels={key: value for key, value in meta.labels.items() if key != APPLYSET_LABEL},
            annotations={**copied, **_solver_annotations(kind, source)},
            owner_references=(owner,),
        ),
        spec=msgspec.structs.replace(
            spec,
            dns_names=_without_covered(spec.dns_names, spec.common_name),
            ip_addresses=_distinct(spec.ip_addresses),
        ),
    )


def _without_covered(dns_names: Sequence[str], common_name: str) -> tuple[str, ...]:
    """Without names that a wildcard among them covers, because Let's Encrypt refuses an order for both. The
    common name stays."""
    wildcards = {name.lower() for name in dns_names if name.startswith("*.")}
    return tuple(
        name
        for name in dns_names
        if name == common_name
        or name.lower() in wildcards
        or f"*.{name.lower().partition('.')[2]}" not in wildcards
    )


def _distinct(addresses: Sequence[str]) -> tuple[str, ...]:
    """The addresses, without other spellings of the same address."""
    distinct: dict[object, str] = {}
    for text in addresses:
        distinct.setdefault(_address(text) or text, text)
    return tuple(distinct.values())


def _solver_annotations(kind: AnyKind, source: IngressLike) -> dict[str, str]:
    annotations, name = source.metadata.annotations, source.metadata.name
    made: dict[str, str] = {}
    if annotations.get(known.EDIT_IN_PLACE) == "true":
        # The temporary certificate: some load balancers need one before they serve the challenge.
        made |= {known.OVERRIDE_NAME: name, names.ISSUE_TEMPORARY_CERTIFICATE: "true"}
    for key, override in (
        (known.INGRESS_CLASS, known.OVERRIDE_CLASS),
        (known.INGRESS_CLASS_NAME, known.OVERRIDE_CLASS_NAME),
    ):
        if annotations.get(key):
            made[override] = annotations[key]
    match source:
        case ListenerSet() if known.is_true(annotations.get(known.PARENT_FALLBACK, "")):
            parent = source.spec.parent_ref
            made |= {
                known.PARENT_KIND: "Gateway",
                known.PARENT_NAME: parent.name,
                known.PARENT_NAMESPACE: parent.namespace or source.metadata.namespace,
            }
        case Gateway() | ListenerSet():
            made |= {known.PARENT_KIND: kind.kind, known.PARENT_NAME: name}
        case _:
            pass
    return made


def updated(existing: Certificate, desired: Certificate, options: ShimOptions) -> Certificate:
    """The Certificate with everything that the shims manage as in `desired`; other fields and annotations
    stay, other labels do not (as with cert-manager)."""
    managed = _OWN_ANNOTATIONS | set(options.extra_annotations)
    meta = existing.metadata
    others = {key: value for key, value in meta.annotations.items() if key not in managed}
    fields: dict[str, Any] = {name: getattr(desired.spec, name) for name in _MANAGED_FIELDS}
    for name in ("duration", "renew_before"):
        if _is_same_duration(getattr(existing.spec, name), fields[name]):
            # cert-manager writes 2160h0m0s where the annotation is 2160h.
            fields[name] = getattr(existing.spec, name)
    return msgspec.structs.replace(
        existing,
        metadata=msgspec.structs.replace(
            meta,
            labels=desired.metadata.labels,
            annotations={**others, **desired.metadata.annotations},
        ),
        spec=msgspec.structs.replace(existing.spec, **fields),
    )


def _is_same_duration(duration: str | None, other: str | None) -> bool:
    if duration is None or other is None:
        return duration == other
    try:
        return parse_duration(duration) == parse_duration(other)
    except ValueError:
        return False


_MANAGED_FIELDS: Final = (
    "common_name",
    "dns_names",
    "ip_addresses",
    "uris",
    "email_addresses",
    "duration",
    "renew_before",
    "renew_before_percentage",
    "usages",
    "revision_history_limit",
    "private_key",
    "secret_template",
    "subject",
    "secret_name",
    "issuer_ref",
)


def _with_annotation(error: FieldError, annotations: Mapping[str, str]) -> str:
    for key, path in known.FIELDS.items():
        if key in annotations and (error.field == path or error.field.startswith((f"{path}[", f"{path}."))):
            return f"annotation {key}: {error.detail}"
    return str(error)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
