"""Strategies of the core kinds: defaults and validation beside their schemas, in Kubernetes' words.

No error of a Secret repeats a value.

Source: Kubernetes API reference and documentation of each kind (Secret types, immutable Secrets and
ConfigMaps); Kubernetes `pkg/apis/core/validation`, `pkg/apis/events/v1/conversion.go`.
"""

from __future__ import annotations

import base64
import re

import msgspec

from certwright.kube.api import naming
from certwright.kube.api.errors import FieldError, forbidden, invalid, required, too_long
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Strategy

MAX_DATA_BYTES = 1024 * 1024
"""The maximum total size of a Secret's or a ConfigMap's values."""

_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_IMMUTABLE = "field is immutable when `immutable` is set"

OPAQUE = "Opaque"
TOKEN_TYPE, ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
"""The type of ServiceAccount token Secrets, and the annotation that names the account."""

REQUIRED_KEYS: dict[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
"""The required keys of a Secret by type."""


def _key_problem(key: str) -> str:
    if len(key) > 253:
        return "must be no more than 253 characters"
    if key in (".", ".."):
        return f"must not be '{key}'"
    if key.startswith(".."):
        return "must not start with '..'"
    return "" if _KEY.fullmatch(key) else _KEY_TEXT


def _key_errors(name: str, data: Json) -> list[FieldError]:
    return [invalid(f"{name}[{key}]", key, problem) for key in data if (problem := _key_problem(key))]


def _decoded_size(value: str) -> int:
    return len(value) // 4 * 3 - value.count("=", -2)


def _frozen_errors(new: Json, old: Json, *names: str) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = [forbidden(name, _IMMUTABLE) for name in names if (new.get(name) or {}) != (old.get(name) or {})]
    return errors if new.get("immutable") else [forbidden("immutable", _IMMUTABLE), *errors]


# --- Secret -----------------------------------------------------------------------------------------------


def _default_secret(secret: Json) -> None:
    plain = secret.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}
    if not secret.get("type"):
        secret["type"] = OPAQUE


def _prepare_secret_update(new: Json, old: Json) -> None:
    # A client that omits the type means the stored one.
    if not new.get("type") and old.get("type"):
        new["type"] = old["type"]


def _validate_secret(new: Json, old: Json | None) -> list[FieldError]:
    data: Json = new.get("data") or {}
    errors = _key_errors("data", data)
    if sum(_decoded_size(value) for value in data.values()) > MAX_DATA_BYTES:
        errors.append(too_long("data", MAX_DATA_BYTES))
    errors += [required(f"data[{key}]") for key in REQUIRED_KEYS.get(new["type"], ()) if key not in data]
    if new["type"] == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        errors += [required("data[username]"), required("data[password]")]
    if new["type"] == TOKEN_TYPE and not (new["metadata"].get("annotations") or {}).get(ACCOUNT_NAME):
        errors.append(required(f"metadata.annotations[{ACCOUNT_NAME}]"))
    if old is not None:
        if new["type"] != old.get("type", OPAQUE):
            errors.append(invalid("type", new["type"], "field is immutable"))
        errors += _frozen_errors(new, old, "data")
    return errors


SECRET = Strategy(prepare_update=_prepare_secret_update, defaults=_default_secret, validate=_validate_secret)

# --- ConfigMap --------------------------------------------------------------------------------------------


def _validate_config_map(new: Json, old: Json | None) -> list[FieldError]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    errors = _key_errors("data", data) + _key_errors("binaryData", binary)
    errors += [
        invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data.keys() & binary
    ]
    size = sum(len(value.encode()) for value in data.values())
    size += sum(_decoded_size(value) for value in binary.values())
    if size > MAX_DATA_BYTES:
        errors.append(too_long("[]", MAX_DATA_BYTES))
    return errors + (_frozen_errors(new, old, "data", "binaryData") if old is not None else [])


CONFIG_MAP = Strategy(validate=_validate_config_map)

# --- Namespace --------------------------------------------------------------------------------------------


def _label_namespace(obj: Json) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _prepare_namespace(obj: Json) -> None:
    finalizers = (obj.get("spec") or {}).get("finalizers") or []
    obj["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
    obj["status"] = {"phase": "Active"}
    # Without a name yet (generateName), the label is added by the first update.
    if obj["metadata"].get("name"):
        _label_namespace(obj)


def _prepare_namespace_update(new: Json, old: Json) -> None:
    for part in ("spec", "status"):
        if part in old:
            new[part] = old[part]
    _label_namespace(new)


def finalize(new: Json, old: Json) -> Json:
    """The stored object after a write to `finalize`: only the finalizers change."""
    spec = {**(old.get("spec") or {})}
    if finalizers := (new.get("spec") or {}).get("finalizers"):
        spec["finalizers"] = finalizers
    else:
        spec.pop("finalizers", None)
    return {**old, "metadata": dict(old["metadata"]), "spec": spec}


def _mark_namespace_deleted(obj: Json) -> None:
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}


NAMESPACE = Strategy(_prepare_namespace, _prepare_namespace_update, mark_deleted=_mark_namespace_deleted)

# --- Event ------------------------------------------------------------------------------------------------


_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}


def _event_errors(new: Json, reporter: str) -> list[FieldError]:
    """The errors of an Event in its stored form. `reporter`: the name of `reportingComponent` in errors."""
    namespace = new["metadata"].get("namespace", "")
    about = new["involvedObject"].get("namespace", "")
    errors = []
    if not new.get("eventTime"):
        # An event about an object without a namespace lives in "default".
        if about != namespace and not (about == "" and namespace == "default"):
            errors.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
        return errors
    if about == "" and namespace not in ("default", "kube-system"):
        errors.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    component = new.get("reportingComponent") or ""
    if not component:
        errors.append(required(reporter))
    errors += [invalid(reporter, component, text) for text in naming.label_key_problems(component)]
    for name, limit in _EVENT_LIMITS.items():
        if not new.get(name) and name != "message":
            errors.append(required(name))
        if len((new.get(name) or "").encode()) > limit:
            errors.append(invalid(name, "", f"can have at most {limit} characters"))
    return errors


EVENT = Strategy(validate=lambda new, _: _event_errors(new, "reportingComponent"))

_FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
    "eventTime", "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
"""Fields of an Event that the newer group does not let change, in their stored names."""


def _validate_new_event(new: Json, old: Json | None) -> list[FieldError]:
    """Validate an Event of the newer group, which is stricter."""
    event = _as_stored(new)
    errors = _event_errors(event, "reportingController")
    before = None if old is None else _as_stored(old)
    series = event.get("series")
    if series is not None and (before is None or series != before.get("series")):
        if series["count"] < 2:
            errors.append(invalid("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            errors.append(required("series.lastObservedTime"))
    if before is not None:
        return errors + [
            invalid(
                "reportingController" if name == "reportingComponent" else name,
                event.get(name),
                "field is immutable",
            )
            for name in _FIXED
            if (event.get(name) or None) != (before.get(name) or None)
        ]
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    unset = ("firstTimestamp", "lastTimestamp", "count", "source")
    return errors + [invalid(name, "", "needs to be unset") for name in unset if event.get(name)]


def _as_stored(event: Json) -> Json:
    return {OLD_NAMES.get(name, name): value for name, value in event.items()}


NEW_EVENT = Strategy(validate=_validate_new_event)

# --- Lease ------------------------------------------------------------------------------------------------


def _validate_lease(new: Json, _: Json | None) -> list[FieldError]:
    spec = new.get("spec") or {}
    errors = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


LEASE = Strategy(validate=_validate_lease)

# --- Events under their two names: `v1` and `events.k8s.io/v1`, one stored form ---------------------------

_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""The fields of a core Event and their names in the newer group."""

OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
"""The inverse mapping."""
_ALWAYS_THERE = {"reportingComponent": "", "reportingInstance": ""}
_LEFT_OUT_WHEN_EMPTY = ("reportingController", "reportingInstance")


def to_new(body: bytes) -> bytes:
    """A stored body converted to events.k8s.io."""
    content = _renamed(body, _NEW_NAMES)
    for name in _LEFT_OUT_WHEN_EMPTY:
        if not content.get(name):
            content.pop(name, None)
    return msgspec.json.encode(content)[1:-1]


def to_stored(body: bytes) -> bytes:
    """A body of events.k8s.io converted to the stored form."""
    return msgspec.json.encode({**_ALWAYS_THERE, **_renamed(body, OLD_NAMES)})[1:-1]


def _renamed(body: bytes, names: dict[str, str]) -> Json:
    content: Json = msgspec.json.decode(b"{" + body + b"}")
    return {names.get(name, name): value for name, value in content.items()}


def source(event: Json) -> str:
    """The program that reports a stored event, as field selectors know it."""
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent")
    return str(component or "")


def field_readers() -> dict[str, str]:
    """Field selectors of events.k8s.io → the stored field that each means."""
    about = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {
        **{f"regarding.{name}": f"involvedObject.{name}" for name in about},
        "reportingController": "reportingComponent",
    }
