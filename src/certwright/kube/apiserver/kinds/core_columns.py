"""Printer columns of the built-in kinds, as `kubectl get` shows them.

Source: what kubectl prints of a Kubernetes cluster (Kubernetes `pkg/printers/internalversion`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.events import OLD_NAMES
from certwright.kube.apiserver.model.definitions import Column
from certwright.kube.apiserver.representations import tables
from certwright.kube.apiserver.representations.tables import AGE, NAME, name_cell


def _phase(obj: Json, _: float) -> Any:
    return (obj.get("status") or {}).get("phase", "")


def _secret_type(obj: Json, _: float) -> Any:
    return obj.get("type", "")


def _data_count(obj: Json, _: float) -> Any:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _secret_count(obj: Json, _: float) -> Any:
    return len(obj.get("secrets") or ())


def _holder(obj: Json, _: float) -> Any:
    return (obj.get("spec") or {}).get("holderIdentity") or ""


def created_at(obj: Json, _: float) -> Any:
    """When the object was created, in UTC."""
    stamp = obj["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if stamp else ""


def _first_seen(obj: Json, now: float) -> Any:
    return tables.age(obj.get("firstTimestamp") or obj.get("eventTime"), now)


def _last_seen(obj: Json, now: float) -> Any:
    series = obj.get("series")
    if series:
        return tables.age(series.get("lastObservedTime"), now)
    last = obj.get("lastTimestamp")
    return tables.age(last, now) if last else _first_seen(obj, now)


def _count(obj: Json, _: float) -> Any:
    return (obj.get("series") or obj).get("count") or 1


def _target(obj: Json, _: float) -> Any:
    about = obj.get("involvedObject") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _target_part(obj: Json, _: float) -> Any:
    return (obj.get("involvedObject") or {}).get("fieldPath", "")


def _source(obj: Json, _: float) -> Any:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _message(obj: Json, _: float) -> Any:
    return str(obj.get("message", "")).strip()


NAMESPACE = (NAME, Column("Status", "string", _phase, description="Active, or Terminating."), AGE)
SECRET = (
    NAME,
    Column("Type", "string", _secret_type, description="What kind of data it holds."),
    Column("Data", "string", _data_count, description="How many values it holds."),
    AGE,
)
CONFIG_MAP = (NAME, Column("Data", "string", _data_count, description="How many values it holds."), AGE)
SERVICE_ACCOUNT = (
    NAME,
    Column("Secrets", "string", _secret_count, description="How many Secrets the account may use."),
    AGE,
)
LEASE = (NAME, Column("Holder", "string", _holder, description="Identity of the holder."), AGE)
CUSTOM_RESOURCE_DEFINITION = (
    NAME,
    Column("Created At", "date", created_at, description="When the definition was created."),
)
EVENT = (
    Column("Last Seen", "string", _last_seen, description="How long ago it happened last."),
    Column("Type", "string", lambda obj, _: obj.get("type", ""), description="Normal or Warning."),
    Column("Reason", "string", lambda obj, _: obj.get("reason", ""), description="Why, in one word."),
    Column("Object", "string", _target, description="The object that it is about."),
    Column("Subobject", "string", _target_part, priority=1, description="The part of the object."),
    Column("Source", "string", _source, priority=1, description="The component that reports it."),
    Column("Message", "string", _message, description="What happened."),
    Column("First Seen", "string", _first_seen, priority=1, description="How long ago it happened first."),
    Column("Count", "string", _count, priority=1, description="How often it happened."),
    Column("Name", "string", name_cell, priority=1, description="The event's name."),
)


def _of_new(column: Column) -> Column:
    """The column for Events of events.k8s.io."""

    def cell(obj: Json, now: float) -> Any:
        return column.cell({OLD_NAMES.get(name, name): value for name, value in obj.items()}, now)

    return replace(column, cell=cell)


NEW_EVENT = tuple(_of_new(column) for column in EVENT)
