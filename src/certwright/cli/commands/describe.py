"""`certwright describe`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click
from msgspec.structs import replace

from certwright.cli import completion, sections
from certwright.cli.access import Session, session
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.format import echo, echo_lines
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
)
from certwright.cli.resource_args import Target, not_found, resolve
from certwright.diagnosis import related
from certwright.diagnosis.certificates import OUR_GROUP, RelatedObjects, diagnose
from certwright.diagnosis.words import count
from certwright.kube.api import errors
from certwright.kube.api.yaml_codec import write_yaml

Json = dict[str, Any]
_APART = ("apiVersion", "kind", "metadata", "status", "data", "stringData", "binaryData")


@click.command(short_help="Show one object in full, with its conditions and events.")
@click.argument("words", nargs=-1, required=True, metavar="KIND [NAME]…", shell_complete=completion.objects())
@selector_option
@all_namespaces_option
@namespaced_server_options
@asynchronous
async def command(
    *, server: ServerOptions, words: tuple[str, ...], selector: str, all_namespaces: bool
) -> None:
    """Show objects in full: metadata, spec, conditions, the rest of the status, and their events.

    Values of Secrets are never shown, only their sizes; use `certwright inspect secret NAME` for more.

    \b
    Examples:
      certwright describe certificate web
      certwright describe clusterissuer/selfsigned
      certwright describe certificates -A
    """
    missing = False
    async with session(server) as here:
        first = True
        for target in await resolve(here, words, all_namespaces=all_namespaces):
            objects, absent = await _fetch(here, target, selector)
            missing |= absent
            for obj in objects:
                echo("" if first else "\n", nl=False)
                first = False
                version = str(obj.get("apiVersion", ""))
                is_certificate = obj.get("kind") == "Certificate" and version.startswith(f"{OUR_GROUP}/")
                context = await related.read_related(here.client, obj) if is_certificate else None
                events = [] if obj.get("kind") == "Event" else await related.events_of(here.client, obj)
                echo_lines(description(obj, events, context, datetime.now(UTC)))
    if missing:
        raise AlreadyReported


async def _fetch(here: Session, target: Target, selector: str) -> tuple[list[Json], bool]:
    if not target.names:
        listing = await here.client.list(target.kind, target.namespace, labels=selector)
        if not listing.items:
            echo(f"no {target.kind.plural}", err=True)
        return listing.items, False
    objects: list[Json] = []
    for name in target.names:
        try:
            objects.append(await here.client.get(target.kind, name, target.namespace))
        except errors.NotFound as error:
            report_error(await not_found(here.client, error, replace(target, names=(name,))))
    return objects, len(objects) < len(target.names)


def description(obj: Json, events: list[Json], context: RelatedObjects | None, now: datetime) -> list[str]:
    """The lines that describe an object; a Certificate's diagnosis is at the end of the head."""
    head = [("Kind", f"{obj.get('kind')} ({obj.get('apiVersion')})"), *sections.metadata_fields(obj, now)]
    if context is not None:
        diagnosis = diagnose(context, now)
        head += [("Diagnosis", diagnosis.cause), ("What to do", diagnosis.advice)]
    status = {k: v for k, v in (obj.get("status") or {}).items() if k != "conditions"}
    rest = {k: v for k, v in obj.items() if k not in _APART}
    spec = rest.pop("spec", None)
    return [
        *sections.fields(head),
        *sections.section("Spec", _nested(spec)),
        *sections.section("Data", _data(obj)),
        *sections.section("More", _nested(rest)),
        *sections.section("Conditions", sections.conditions(obj, now)),
        *sections.section("Status", _nested(status)),
        *sections.section("Events", sections.events(events, now)),
    ]


def _data(obj: Json) -> list[str]:
    """ConfigMaps with their values, Secrets with the sizes of theirs."""
    data = obj.get("data")
    if not isinstance(data, Mapping):
        return []
    if obj.get("kind") != "Secret":
        return _nested(dict(data))
    return sections.fields((key, count(_size(value), "byte")) for key, value in data.items())


def _size(value: Any) -> int:
    try:
        return len(base64.b64decode(str(value)))
    except (ValueError, binascii.Error):
        return len(str(value))


def _nested(value: Any) -> list[str]:
    """Any value as indented YAML lines."""
    return write_yaml(value).splitlines() if value not in (None, {}, []) else []
