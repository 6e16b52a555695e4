"""`certwright events`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.format import echo, print_content, print_table
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    json_option,
    namespaced_server_options,
    no_headers_option,
)
from certwright.cli.resource_args import Target, resolve
from certwright.diagnosis.related import EVENTS, last_seen
from certwright.diagnosis.words import age, parse_time, sentence

Json = dict[str, Any]


@click.command(short_help="List events, oldest first.")
@click.argument("words", nargs=-1, metavar="[KIND/NAME]", shell_complete=completion.objects())
@json_option("As a List in JSON or YAML instead of a table.")
@no_headers_option
@all_namespaces_option
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    words: tuple[str, ...],
    output: str | None,
    no_headers: bool,
    all_namespaces: bool,
) -> None:
    """List the events of a namespace, or about one object, oldest first.

    Events about deleted objects are included, until the server removes them.

    \b
    Examples:
      certwright events
      certwright events certificate/web
      certwright events -A
      certwright events -A -o json
    """
    async with session(server) as here:
        namespace = "" if all_namespaces else here.namespace
        target = await _target(here, words, all_namespaces=all_namespaces)
        # The events, oldest first; those about cluster-wide objects are looked for in all namespaces.
        if target is None:
            listing = await here.client.list(EVENTS, namespace)
        else:
            fields = f"involvedObject.kind={target.kind.kind},involvedObject.name={target.names[0]}"
            listing = await here.client.list(EVENTS, target.namespace, fields=fields)
        events = sorted(listing.items, key=last_seen)
    if output is not None:
        print_content({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": events}, output)
        return
    if events:
        now = datetime.now(UTC)
        titles = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        rows = [_row(event, now) for event in events]
        if all_namespaces:
            titles.insert(0, "NAMESPACE")
            spaces = [str(event["metadata"].get("namespace", "")) for event in events]
            rows = [(space, *row) for space, row in zip(spaces, rows, strict=True)]
        print_table(titles, rows, headers=not no_headers)
        return
    about = f" about {'/'.join(words)}" if words else ""
    place = f" in namespace {namespace} (-A searches all)" if namespace else ""
    echo(f"no events{about}{place}", err=True)


async def _target(here: Session, words: tuple[str, ...], *, all_namespaces: bool) -> Target | None:
    if not words:
        return None
    targets = await resolve(here, words, all_namespaces=all_namespaces)
    if len(targets) != 1 or len(targets[0].names) != 1:
        raise click.UsageError("name one object, e.g. `certificate/web`, or none for all events")
    return targets[0]


def _row(event: Json, now: datetime) -> tuple[str, ...]:
    times = int(event.get("count") or 1)
    about = event.get("involvedObject") or {}
    return (
        age(parse_time(last_seen(event)[0]), now) + (f" (x{times})" if times > 1 else ""),
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        sentence(str(event.get("message", ""))),
    )
