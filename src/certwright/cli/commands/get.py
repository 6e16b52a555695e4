"""`certwright get`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
import msgspec
from msgspec.structs import replace

from certwright.cli import completion, lazy
from certwright.cli.access import Session, session
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.flags import gathered
from certwright.cli.format import TABLE, ServerTable, echo, print_content, print_lines, reference, table
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    no_headers_option,
    selector_option,
)
from certwright.cli.resource_args import Target, not_found, resolve
from certwright.kube.api import errors
from certwright.kube.client.watch import DELETED, LineReader, before_error
from certwright.kube.util.http_messages import close_stream, whole_body
from certwright.resources.names import GROUP

if TYPE_CHECKING:
    from certwright.cli.jsonpath_template import Column, Render
    from certwright.kube.util.jsonpath import Find


_DATES = (("Not After", "notAfter"), ("Renews At", "renewalTime"))
_SAME = "Expiration"
"""The server's column, of wide tables only, with the content of Not After."""
_TEXT: Json = {"type": "string", "priority": 0}


def with_dates(table: Json) -> Json:
    """A table of whole Certificates with the end of validity and the time of renewal, before the age.

    Times are as in status: RFC 3339 in UTC.
    """
    titles = [{**_TEXT, "name": title} for title, _ in _DATES]
    definitions = [
        {**column, "hidden": column.get("name") == _SAME} for column in table.get("columnDefinitions") or []
    ]
    rows = []
    for row in table.get("rows") or []:
        status, cells = (row.get("object") or {}).get("status") or {}, row.get("cells") or [None]
        dates = (status.get(field) for _, field in _DATES)
        rows.append({**row, "cells": [*cells[:-1], *dates, cells[-1]]})
    return {
        **table,
        "columnDefinitions": [*definitions[:-1], *titles, *definitions[-1:]] if definitions else [],
        "rows": rows,
    }


def with_labels(table: Json) -> Json:
    """The table with the labels of each object as last column."""
    definitions = table.get("columnDefinitions")
    rows = []
    for row in table.get("rows") or []:
        labels = ((row.get("object") or {}).get("metadata") or {}).get("labels") or {}
        cell = ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"
        rows.append({**row, "cells": [*(row.get("cells") or []), cell]})
    return {
        **table,
        "columnDefinitions": [*definitions, {**_TEXT, "name": "Labels"}] if definitions else [],
        "rows": rows,
    }


def sort_key(find: Find, obj: Any) -> tuple[int, float, str]:
    """The place of an object in the order of one of its values: missing first, then numbers, then texts."""
    value = find(obj)
    if value is lazy.jsonpath.MISSING or value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, value, ""
    return 2, 0.0, str(value)


_FORMS = ("wide", "yaml", "json", "name")


class Output(msgspec.Struct, frozen=True):
    """The value of `-o`: a form, with a template or columns for two of them."""

    form: str = ""
    render: Render | None = None
    columns: tuple[Column, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether the server makes the table."""
        return self.form in ("", "wide")


class OutputType(click.ParamType[Output]):
    """The type of `-o`."""

    name = "output"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """See `click.ParamType`."""
        form, _, text = str(value).partition("=")
        try:
            match form:
                case "jsonpath" if text:
                    return Output(form, render=lazy.jsonpath_template.template(text))
                case "custom-columns" if text:
                    return Output(form, columns=lazy.jsonpath_template.columns(text))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if value not in ("", *_FORMS):
            known = ", ".join(_FORMS)
            self.fail(f"{value!r} is not one of {known}, jsonpath=TEMPLATE, custom-columns=…", param, ctx)
        return Output(form)


class PathType(click.ParamType["Find"]):
    """The type of `--sort-by`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Find:
        """See `click.ParamType`."""
        try:
            return lazy.jsonpath.compile_path(lazy.jsonpath_template.bare_path(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The options on what is shown, and how."""

    selector: str
    output: Output
    sort_by: Find | None
    show_labels: bool
    all_namespaces: bool
    no_headers: bool


@click.command(short_help="List objects, or print them as YAML or JSON.")
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND[,KIND] [NAME]…", shell_complete=completion.objects()
)
@all_namespaces_option
@selector_option
@click.option(
    "-o",
    "--output",
    type=OutputType(),
    metavar="FORM",
    default="",
    help="wide (more columns), yaml, json, name (only `kind/name`), jsonpath=TEMPLATE or "
    "custom-columns=HEADER:PATH,…; without it a table.",
)
@click.option("--sort-by", metavar="PATH", type=PathType(), help="Sort by a field, e.g. `.status.notAfter`.")
@click.option("--show-labels", is_flag=True, help="Add a column with the labels.")
@no_headers_option
@click.option("-w", "--watch", is_flag=True, help="Keep running, and print every change as it happens.")
@namespaced_server_options
@gathered("shown", _Shown)
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...], shown: _Shown, watch: bool) -> None:
    """List objects of a kind, or print one or several.

    KIND is a plural, a singular, a short name or a category: certificates, certificate, cert, cert-manager.
    KIND/NAME works too. A table of certificates shows when they end and when they are renewed.

    \b
    Examples:
      certwright get certificates -A
      certwright get cert web -o yaml
      certwright get issuers,clusterissuers
      certwright get secret -l controller.cert-manager.io/fao=true
      certwright get certificates -w
      certwright get certificates -A --sort-by .status.notAfter
      certwright get cert web -o jsonpath='{.status.notAfter}'
      certwright get cert -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
      certwright get cert -o custom-columns=NAME:.metadata.name,ISSUER:.spec.issuerRef.name
    """
    if watch and shown.sort_by is not None:
        raise click.UsageError("--sort-by sorts a list; leave out --watch")
    if shown.show_labels and not shown.output.is_table:
        raise click.UsageError("--show-labels adds a column to a table; leave out -o, or use -o wide")
    async with session(server) as here:
        targets = await resolve(here, words, all_namespaces=shown.all_namespaces)
        if watch and (len(targets) > 1 or len(targets[0].names) > 1):
            raise click.UsageError("--watch follows one kind, or one object")
        getter: _Getter = _Tables(here, shown) if shown.output.is_table else _Objects(here, shown)
        await getter.show(targets)
        if watch:
            await getter.follow(targets[0])
        if getter.missing:
            raise AlreadyReported


class _Getter(ABC):
    """Base class of both output forms."""

    def __init__(self, here: Session, shown: _Shown) -> None:
        self._client = here.client
        self._shown = shown
        self._sort_by = shown.sort_by
        self.missing = False

    @abstractmethod
    async def show(self, targets: list[Target]) -> None:
        """Print the current objects."""

    @abstractmethod
    async def follow(self, target: Target) -> None:
        """Print changes, until the server ends the watch."""

    def _fields(self, target: Target) -> str:
        return f"metadata.name={target.names[0]}" if target.names else ""

    async def _report_missing(self, target: Target, name: str, error: errors.NotFound) -> None:
        report_error(await not_found(self._client, error, replace(target, names=(name,))))
        self.missing = True


class _Objects(_Getter):
    """Whole objects as YAML or JSON, or their names, or the user's template or columns."""

    def __init__(self, here: Session, shown: _Shown) -> None:
        super().__init__(here, shown)
        self._output, self._form = shown.output, shown.output.form
        self._revision = ""
        self._widths: list[int] = []

    async def show(self, targets: list[Target]) -> None:
        objects: list[tuple[Target, Json]] = []
        for target in targets:
            objects += [(target, obj) for obj in await self._fetch(target)]
        if (find := self._sort_by) is not None:
            objects.sort(key=lambda pair: sort_key(find, pair[1]))
        single = len(targets) == 1 and len(targets[0].names) == 1
        if self._form == "name":
            for target, obj in objects:
                echo(reference(target.kind, obj["metadata"]["name"]))
        elif self._output.columns:
            self._print_rows([obj for _, obj in objects])
        elif not single:
            items = [obj for _, obj in objects]
            self._print({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
        elif objects:
            self._print(objects[0][1])

    async def _fetch(self, target: Target) -> list[Json]:
        if not target.names:
            listing = await self._client.list(target.kind, target.namespace, labels=self._shown.selector)
            self._revision = listing.resource_version
            return listing.items
        objects = []
        for name in target.names:
            try:
                objects.append(await self._client.get(target.kind, name, target.namespace))
                self._revision = objects[-1]["metadata"].get("resourceVersion", "")
            except errors.NotFound as error:
                await self._report_missing(target, name, error)
        return objects

    def _print_rows(self, objects: list[Json]) -> None:
        columns = self._output.columns
        headers = not self._widths and not self._shown.no_headers
        rows = [[column.cell(obj) for column in columns] for obj in objects]
        titles = [column.title for column in columns]
        lines, self._widths = table(titles, rows, headers=headers, at_least=self._widths)
        print_lines(lines)

    def _print(self, content: Json) -> None:
        if self._output.render is not None:
            click.echo(self._output.render(content))
        else:
            print_content(content, self._form)

    async def follow(self, target: Target) -> None:
        watch = self._client.watch(
            target.kind,
            target.namespace,
            resource_version=self._revision,
            labels=self._shown.selector,
            fields=self._fields(target),
        )
        async with aclosing(watch):
            async for batch in watch:
                for event in batch:
                    if self._form == "name":
                        echo(reference(target.kind, event.object["metadata"]["name"]))
                    elif self._output.columns:
                        self._print_rows([event.object])
                    elif self._form == "yaml":
                        echo("---")
                        print_content(event.object, "yaml")
                    else:
                        self._print(event.object)


class _Printed:
    """The rows of a watch as they were printed last, without their age, which always differs."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], dict[str, str]] = {}

    def changed(self, titles: list[str], rows: list[list[str]]) -> list[list[str]]:
        """Return the rows that changed since the last call, and remember them as printed."""
        changed = []
        for row in rows:
            key, content = self._entry(titles, row)
            if self._rows.get(key) != content:
                changed.append(row)
            self._rows[key] = content
        return changed

    def deleted(self, titles: list[str], rows: list[list[str]]) -> list[list[str]]:
        """All printed rows; they are forgotten, because the next object of a name is a new object."""
        for row in rows:
            self._rows.pop(self._entry(titles, row)[0], None)
        return rows

    def _entry(self, titles: list[str], row: list[str]) -> tuple[tuple[str, str], dict[str, str]]:
        content = dict(zip(titles, row, strict=True))
        content.pop("AGE", None)
        return (content.get("NAMESPACE", ""), content.get("NAME", "")), content


class _Tables(_Getter):
    """Tables with the server's columns, and those of `table_columns`."""

    def __init__(self, here: Session, shown: _Shown) -> None:
        super().__init__(here, shown)
        self._columns: list[Json] = []
        self._widths: list[int] = []
        self._revision = ""
        self._listed: list[list[str]] = []
        self._several = False

    async def show(self, targets: list[Target]) -> None:
        empty, self._several = True, len(targets) > 1
        for target in targets:
            table_rows = [row for table in await self._tables(target) for row in table.get("rows") or []]
            if (find := self._sort_by) is not None:
                table_rows.sort(key=lambda row: sort_key(find, row.get("object")))
            self._listed = rows = self._rows(target, {"rows": table_rows})
            if not rows:
                continue
            if not empty:
                echo()
            empty = False
            self._print(self._header(target), rows, headers=True)
        if empty and not self.missing:
            kinds = ", ".join(target.kind.plural for target in targets)
            namespace = next((target.namespace for target in targets if target.namespace), "")
            place = f" in namespace {namespace} (-A searches all)" if namespace else ""
            echo(f"no {kinds}{place}", err=True)

    async def _tables(self, target: Target) -> list[Json]:
        if not target.names:
            return [await self._request(target, "", {"labelSelector": self._shown.selector})]
        tables = []
        for name in target.names:
            try:
                tables.append(await self._request(target, name, {}))
            except errors.NotFound as error:
                await self._report_missing(target, name, error)
        return tables

    async def _request(self, target: Target, name: str, query: dict[str, str]) -> Json:
        query = {**query, "includeObject": self._include(target)}
        response = await self._client.raw("GET", _path(target, name), query=query, headers={"accept": TABLE})
        table = self._extended(target, msgspec.json.decode(await whole_body(response)))
        self._columns = table.get("columnDefinitions") or self._columns
        self._revision = (table.get("metadata") or {}).get("resourceVersion", "")
        return table

    def _include(self, target: Target) -> str:
        """How much of each object the server sends with its row."""
        return "Object" if self._sort_by is not None or _has_dates(target) else "Metadata"

    def _extended(self, target: Target, table: Json) -> Json:
        if _has_dates(target):
            table = with_dates(table)
        return with_labels(table) if self._shown.show_labels else table

    def _header(self, target: Target) -> list[str]:
        namespaces = self._shown.all_namespaces and target.kind.namespaced
        return ServerTable({"columnDefinitions": self._columns}).header(
            wide=self._shown.output.form == "wide", namespaces=namespaces
        )

    def _rows(self, target: Target, table: Json) -> list[list[str]]:
        shown = ServerTable({**table, "columnDefinitions": self._columns})
        prefix = reference(target.kind, "") if self._several else ""
        namespaces = self._shown.all_namespaces and target.kind.namespaced
        return shown.rows(wide=self._shown.output.form == "wide", namespaces=namespaces, prefix=prefix)

    def _print(self, titles: list[str], rows: list[list[str]], *, headers: bool) -> None:
        before = self._widths if not self._several else ()
        headers = headers and not self._shown.no_headers
        lines, self._widths = table(titles, rows, headers=headers, at_least=before)
        print_lines(lines)

    async def follow(self, target: Target) -> None:
        async with aclosing(self._changes(target)) as changes:
            printed = _Printed()
            printed.changed(self._header(target), self._listed)
            async for kind, table in changes:
                titles, rows = self._header(target), self._rows(target, table)
                shown = printed.deleted(titles, rows) if kind == DELETED else printed.changed(titles, rows)
                if shown:
                    self._print(titles, shown, headers=not self._widths)

    async def _changes(self, target: Target) -> AsyncGenerator[tuple[str, Json], None]:
        query = {
            "watch": "true",
            "resourceVersion": self._revision,
            "labelSelector": self._shown.selector,
            "fieldSelector": self._fields(target),
            "includeObject": self._include(target),
        }
        response = await self._client.raw("GET", _path(target, ""), query=query, headers={"accept": TABLE})
        assert response.stream is not None
        reader = LineReader()
        try:
            async for chunk in response.stream:
                events, error = before_error(reader.feed(chunk))
                for event in events:
                    table = self._extended(target, msgspec.json.decode(event.object))
                    # Only the first table of a watch has the columns.
                    self._columns = table.get("columnDefinitions") or self._columns
                    yield event.type, table
                if error is not None:
                    raise error
        finally:
            await close_stream(response.stream)


def _has_dates(target: Target) -> bool:
    return target.kind.resource == f"certificates.{GROUP}"


def _path(target: Target, name: str) -> str:
    return target.kind.path(quote(target.namespace, safe=""), quote(name, safe=""))
