"""`certwright get`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import click
import msgspec

from certwright.cli.access import Session, session
from certwright.cli.applier import reference
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
)
from certwright.cli.resource_args import Target, resolve
from certwright.cli.tables import TABLE, ServerTable, aligned
from certwright.kube.api import errors
from certwright.kube.api.yaml_writer import write_yaml
from certwright.kube.client.transport import close_stream, whole_body
from certwright.kube.client.watch import LineReader, before_error

Json = dict[str, Any]


@click.command(short_help="List objects, or print them as YAML or JSON.")
@click.argument("words", nargs=-1, required=True, metavar="KIND[,KIND] [NAME]…")
@all_namespaces_option
@selector_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["wide", "yaml", "json", "name"]),
    help="More columns, the objects as YAML or JSON, or only `kind/name`; without it a table.",
)
@click.option("-w", "--watch", is_flag=True, help="Keep running, and print every change as it happens.")
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    words: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    output: str | None,
    watch: bool,
) -> None:
    """List objects of a kind, or print one or several.

    KIND is a plural, a singular, a short name or a category: certificates, certificate, cert, cert-manager.
    KIND/NAME works too.

    \b
    Examples:
      certwright get certificates -A
      certwright get cert web -o yaml
      certwright get issuers,clusterissuers
      certwright get secret -l controller.cert-manager.io/fao=true
      certwright get certificates -w
    """
    async with session(server) as here:
        targets = await resolve(here, words, all_namespaces=all_namespaces)
        if watch and (len(targets) > 1 or len(targets[0].names) > 1):
            raise click.UsageError("--watch follows one kind, or one object")
        if output in ("yaml", "json", "name"):
            getter: _Getter = _Objects(here, selector, output)
        else:
            several = len(targets) > 1
            getter = _Tables(
                here, selector, wide=output == "wide", namespaces=all_namespaces, several=several
            )
        await getter.show(targets)
        if watch:
            await getter.follow(targets[0])
        if getter.missing:
            raise AlreadyReported


class _Getter(ABC):
    """Base class of both output forms."""

    def __init__(self, here: Session, selector: str) -> None:
        self._client = here.client
        self._selector = selector
        self.missing = False

    @abstractmethod
    async def show(self, targets: list[Target]) -> None:
        """Print the current objects."""

    @abstractmethod
    async def follow(self, target: Target) -> None:
        """Print changes, until the server ends the watch."""

    def _fields(self, target: Target) -> str:
        return f"metadata.name={target.names[0]}" if target.names else ""

    def _report_missing(self, error: errors.NotFound) -> None:
        report_error(str(error))
        self.missing = True


class _Objects(_Getter):
    """Whole objects as YAML or JSON, or their names."""

    def __init__(self, here: Session, selector: str, form: str) -> None:
        super().__init__(here, selector)
        self._form = form
        self._revision = ""

    async def show(self, targets: list[Target]) -> None:
        objects: list[tuple[Target, Json]] = []
        for target in targets:
            objects += [(target, obj) for obj in await self._fetch(target)]
        single = len(targets) == 1 and len(targets[0].names) == 1
        if self._form == "name":
            for target, obj in objects:
                click.echo(reference(target.kind, obj["metadata"]["name"]))
        elif not single:
            items = [obj for _, obj in objects]
            self._print({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
        elif objects:
            self._print(objects[0][1])

    async def _fetch(self, target: Target) -> list[Json]:
        if not target.names:
            listing = await self._client.list(target.kind, target.namespace, labels=self._selector)
            self._revision = listing.resource_version
            return listing.items
        found = []
        for name in target.names:
            try:
                found.append(await self._client.get(target.kind, name, target.namespace))
                self._revision = found[-1]["metadata"].get("resourceVersion", "")
            except errors.NotFound as error:
                self._report_missing(error)
        return found

    def _print(self, content: Json) -> None:
        if self._form == "json":
            click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))
        else:
            click.echo(write_yaml(content), nl=False)

    async def follow(self, target: Target) -> None:
        watch = self._client.watch(
            target.kind,
            target.namespace,
            resource_version=self._revision,
            labels=self._selector,
            fields=self._fields(target),
        )
        async with aclosing(watch):
            async for batch in watch:
                for event in batch:
                    self._print_change(target, event.object)

    def _print_change(self, target: Target, obj: Json) -> None:
        if self._form == "name":
            click.echo(reference(target.kind, obj["metadata"]["name"]))
        elif self._form == "yaml":
            click.echo("---\n" + write_yaml(obj), nl=False)
        else:
            self._print(obj)


class _Tables(_Getter):
    """Tables with the server's columns."""

    def __init__(self, here: Session, selector: str, *, wide: bool, namespaces: bool, several: bool) -> None:
        super().__init__(here, selector)
        self._wide = wide
        self._namespaces = namespaces
        self._several = several
        self._columns: list[Json] = []
        self._widths: list[int] = []
        self._revision = ""

    async def show(self, targets: list[Target]) -> None:
        empty = True
        for target in targets:
            rows = [row for table in await self._tables(target) for row in self._rows(target, table)]
            if not rows:
                continue
            if not empty:
                click.echo()
            empty = False
            self._print([self._header(target), *rows])
        if empty and not self.missing:
            _report_none(targets)

    async def _tables(self, target: Target) -> list[Json]:
        if not target.names:
            return [await self._request(target, "", {"labelSelector": self._selector})]
        tables = []
        for name in target.names:
            try:
                tables.append(await self._request(target, name, {}))
            except errors.NotFound as error:
                self._report_missing(error)
        return tables

    async def _request(self, target: Target, name: str, query: dict[str, str]) -> Json:
        response = await self._client.raw("GET", _path(target, name), query=query, headers={"accept": TABLE})
        table: Json = msgspec.json.decode(await whole_body(response))
        self._columns = table.get("columnDefinitions") or self._columns
        self._revision = (table.get("metadata") or {}).get("resourceVersion", "")
        return table

    def _header(self, target: Target) -> list[str]:
        namespaces = self._namespaces and target.kind.namespaced
        return ServerTable({"columnDefinitions": self._columns}).header(
            wide=self._wide, namespaces=namespaces
        )

    def _rows(self, target: Target, table: Json) -> list[list[str]]:
        # A watch sends the columns with its first table only.
        shown = ServerTable({**table, "columnDefinitions": table.get("columnDefinitions") or self._columns})
        prefix = reference(target.kind, "") if self._several else ""
        namespaces = self._namespaces and target.kind.namespaced
        return shown.rows(wide=self._wide, namespaces=namespaces, prefix=prefix)

    def _print(self, rows: list[list[str]]) -> None:
        lines, self._widths = aligned(rows, at_least=self._widths if not self._several else ())
        for line in lines:
            click.echo(line)

    async def follow(self, target: Target) -> None:
        async with aclosing(self._changes(target)) as changes:
            async for table in changes:
                rows = self._rows(target, table)
                self._print(rows if self._widths else [self._header(target), *rows])

    async def _changes(self, target: Target) -> AsyncGenerator[Json, None]:
        query = {
            "watch": "true",
            "resourceVersion": self._revision,
            "labelSelector": self._selector,
            "fieldSelector": self._fields(target),
        }
        response = await self._client.raw("GET", _path(target, ""), query=query, headers={"accept": TABLE})
        assert response.stream is not None
        reader = LineReader()
        try:
            async for chunk in response.stream:
                events, error = before_error(reader.feed(chunk))
                for event in events:
                    yield msgspec.json.decode(event.object)
                if error is not None:
                    raise error
        finally:
            await close_stream(response.stream)


def _path(target: Target, name: str) -> str:
    return target.kind.path(quote(target.namespace, safe=""), quote(name, safe=""))


def _report_none(targets: list[Target]) -> None:
    kinds = ", ".join(target.kind.plural for target in targets)
    namespace = next((target.namespace for target in targets if target.namespace), "")
    place = f" in namespace {namespace} (-A searches all)" if namespace else ""
    click.echo(f"no {kinds}{place}", err=True)
