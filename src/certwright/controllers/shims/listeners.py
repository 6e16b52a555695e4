"""Which names use which Secret, by the TLS settings of an Ingress, Gateway or ListenerSet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from certwright.controllers.shims.annotations import IGNORE_TLS_LISTENERS
from certwright.kube.api.errors import FieldError, invalid, not_supported, required
from certwright.resources.ingress import Ingress, IngressLike, Listener, SecretReference


class TlsSettings(NamedTuple):
    """The hosts by their Secret, and why others are left out."""

    hosts: Mapping[str, Sequence[str]]
    errors: Sequence[FieldError]


def read_settings(source: IngressLike, protocols: frozenset[str]) -> TlsSettings:
    """The TLS settings of the object. `protocols` are those of listeners that need certificates."""
    return _of_ingress(source) if isinstance(source, Ingress) else _of_listeners(source, protocols)


def size_of(source: IngressLike) -> int:
    """How many hosts, Secrets and listeners it names, and values in lists of its annotations."""
    listed = sum(text.count(",") for text in source.metadata.annotations.values())
    if isinstance(source, Ingress):
        return listed + sum(1 + len(tls.hosts) for tls in source.spec.tls)
    references = (len(listener.tls.certificate_refs) for listener in source.spec.listeners if listener.tls)
    return listed + len(source.spec.listeners) + sum(references)


def secrets_of(source: IngressLike) -> frozenset[str]:
    """All Secrets that the object names, in its own namespace."""
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
        if listener.name in ignored or _passes_through(listener) or _is_plain(listener, protocols):
            continue
        wrong = _check(listener, f"spec.listeners[{place}]", source.metadata.namespace, protocols)
        if wrong:
            errors += wrong
            continue
        assert listener.tls is not None
        assert listener.hostname
        for reference in listener.tls.certificate_refs:
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


def _passes_through(listener: Listener) -> bool:
    return listener.tls is not None and listener.tls.mode == "Passthrough"


def _is_plain(listener: Listener, protocols: frozenset[str]) -> bool:
    """Whether it needs no certificate, and names none."""
    names_none = listener.tls is None or not listener.tls.certificate_refs
    return listener.protocol not in protocols and names_none


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
