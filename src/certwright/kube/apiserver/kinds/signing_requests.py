"""CertificateSigningRequests: the requesting user, permitted changes, and validation.

Source: Kubernetes documentation, "Certificates and Certificate Signing Requests"; API reference,
CertificateSigningRequest v1 certificates.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from certwright.kube.api.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Strategy
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Identity

_DECISIONS = ("Approved", "Denied")
_MIN_SECONDS = 600
_MAX_REQUEST_BYTES = 128 * 1024
# As Go's crypto/tls and crypto/rsa.
_MAX_RSA_BITS, _MAX_EXPONENT_BITS = 8192, 31
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system",
    "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc",
    "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
)  # fmt: skip


def strategy(clock: Clock) -> Strategy:
    """The strategy; `clock` gives the times of its conditions."""

    def prepare_status(new: Json, old: Json) -> None:
        others = [c for c in _conditions(new) if c.get("type") not in _DECISIONS]
        _set_conditions(new, [*_decisions(old), *others])
        _stamp(new, old, clock)

    return Strategy(
        prepare_create=lambda obj: obj.update(status={}),
        prepare_update=_prepare_update,
        prepare_status=prepare_status,
        validate=_validate,
        identify=_identify,
    )


def approve(clock: Clock, new: Json, old: Json) -> Json:
    """The stored object after a write to `approval`: only the conditions change."""
    made = {**old, "metadata": dict(old["metadata"]), "status": dict(old.get("status") or {})}
    _set_conditions(made, _conditions(new))
    _stamp(made, old, clock)
    return made


def _identify(obj: Json, user: Identity) -> None:
    """Overwrite the client's claims about itself with the authenticated user."""
    spec = obj["spec"]
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    extra = {key: list(values) for key, values in user.extra.items()}
    known = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    spec.update({name: value for name, value in known.items() if value})


def _prepare_update(new: Json, old: Json) -> None:
    for part in ("spec", "status"):
        if part in old:
            new[part] = old[part]


def _conditions(obj: Json) -> list[Json]:
    return (obj.get("status") or {}).get("conditions") or []


def _decisions(obj: Json) -> list[Json]:
    return [condition for condition in _conditions(obj) if condition.get("type") in _DECISIONS]


def _set_conditions(obj: Json, conditions: list[Json]) -> None:
    status = obj.setdefault("status", {})
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)


def _stamp(new: Json, old: Json, clock: Clock) -> None:
    """Fill in times that the client left out: now, or the former ones where the status has not changed."""
    now = clock.now().isoformat()[:19] + "Z"
    before = {condition.get("type"): condition for condition in _conditions(old)}
    for condition in _conditions(new):
        same = before.get(condition.get("type"), {})
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            unturned = same.get("status") == condition.get("status")
            condition["lastTransitionTime"] = (unturned and same.get("lastTransitionTime")) or now


# --- rules ------------------------------------------------------------------------------------------------


def _validate(new: Json, old: Json | None) -> list[FieldError]:
    errors = _condition_errors(new) + _certificate_errors(new, old)
    if old is None:
        return _spec_errors(new["spec"]) + errors
    kept = {condition["type"] for condition in _decisions(new)}
    for condition in _decisions(old):
        if condition["type"] not in kept:
            text = f'updates may not remove a condition of type "{condition["type"]}"'
            errors.append(forbidden("status.conditions", text))
    return errors


def _spec_errors(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    if text := _request_error(spec.get("request")):
        errors.append(invalid("spec.request", spec.get("request"), text))
    usages = spec.get("usages", [])
    if not usages:
        errors.append(required("spec.usages"))
    seen = set[str]()
    for index, usage in enumerate(usages):
        path = f"spec.usages[{index}]"
        if usage not in _USAGES:
            errors.append(not_supported(path, usage, _USAGES))
        elif usage in seen:
            errors.append(duplicate(path, usage))
        seen.add(usage)
    errors += _signer_errors(spec["signerName"])
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        text = f"may not specify a duration less than {_MIN_SECONDS} seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", seconds, text))
    return errors


def _request_error(request: Any) -> str:
    decoded = base64.b64decode(request or "")
    if not re.search(rb"-----BEGIN CERTIFICATE REQUEST-----\s", decoded):
        return "PEM block type must be CERTIFICATE REQUEST"
    # Imported on first use because most servers never see a CertificateSigningRequest.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    if len(decoded) > _MAX_REQUEST_BYTES:
        return f"the request may have at most {_MAX_REQUEST_BYTES} bytes"
    try:
        csr = x509.load_pem_x509_csr(decoded)
        key = csr.public_key()
        # The time of a verification depends on these numbers, which the requester chooses.
        if isinstance(key, rsa.RSAPublicKey) and (
            key.key_size > _MAX_RSA_BITS or key.public_numbers().e.bit_length() > _MAX_EXPONENT_BITS
        ):
            return (
                f"its RSA key has more than {_MAX_RSA_BITS} bits, or an exponent of more than "
                f"{_MAX_EXPONENT_BITS} bits"
            )
        signed = csr.is_signature_valid
    except (ValueError, TypeError) as error:
        return f"the request cannot be read: {error}"
    return "" if signed else "the signature of the request is wrong"


def _signer_errors(name: str) -> list[FieldError]:
    path = "spec.signerName"
    if not name:
        return [required(path)]
    if name == "kubernetes.io/legacy-unknown":
        return [invalid(path, name, "Legacy signerName is not allowed via this API version")]
    domain, _, rest = name.partition("/")
    if not rest or "/" in rest:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, text)]
    texts = [object_names.dns_subdomain(domain)]
    if "." not in domain:
        texts.append("should be a domain with at least two segments separated by dots")
    texts += [object_names.dns_subdomain(part) for part in rest.split(".")]
    return [invalid(path, name, text) for text in texts if text]


def _condition_errors(new: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(_conditions(new)):
        path, type_, status = f"status.conditions[{index}]", condition["type"], condition.get("status", "")
        if not type_:
            errors.append(required(f"{path}.type"))
        allowed = ("True",) if type_ in (*_DECISIONS, "Failed") else ("False", "True", "Unknown")
        if not status:
            errors.append(required(f"{path}.status"))
        elif status not in allowed:
            errors.append(not_supported(f"{path}.status", status, allowed))
        if type_ in seen:
            errors.append(duplicate(f"{path}.type", type_))
        elif seen | {type_} >= set(_DECISIONS) and type_ in _DECISIONS:
            text = "Approved and Denied conditions are mutually exclusive"
            errors.append(invalid(f"{path}.type", type_, text))
        seen.add(type_)
    return errors


def _certificate_errors(new: Json, old: Json | None) -> list[FieldError]:
    certificate = (new.get("status") or {}).get("certificate")
    before = ((old or {}).get("status") or {}).get("certificate")
    if before and before != certificate:
        return [forbidden("status.certificate", "updates may not modify existing certificate content")]
    if not certificate or certificate == before:
        return []
    labels = re.findall(rb"-----BEGIN ([^-]+)-----", base64.b64decode(certificate))
    other = next((label.decode(errors="replace") for label in labels if label != b"CERTIFICATE"), None)
    if labels and other is None:
        return []
    text = f'only CERTIFICATE PEM blocks are allowed, found "{other}"'
    if not labels:
        text = "must contain at least one CERTIFICATE PEM block"
    return [
        FieldError("status.certificate", "FieldValueInvalid", f'Invalid value: "<certificate data>": {text}')
    ]
