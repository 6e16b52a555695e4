"""`certwright explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from certwright.cli.access import Session, session
from certwright.cli.errors import Failed
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, server_options
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.client import discovery
from certwright.kube.util.http_messages import whole_body

Json = dict[str, Any]
_REF = "#/components/schemas/"
_WIDTH = 100


@click.command(short_help="Describe a kind and its fields.")
@click.argument("path", metavar="KIND[.FIELD]…")
@click.option("--recursive", is_flag=True, help="Print the names of all fields below, too.")
@server_options
@asynchronous
async def command(*, server: ServerOptions, path: str, recursive: bool) -> None:
    """Describe a kind, or a field of it, from the server's own documentation (OpenAPI).

    \b
    Examples:
      certwright explain certificate
      certwright explain certificate.spec.privateKey
      certwright explain issuer.spec.acme --recursive
    """
    word, *fields = path.split(".")
    async with session(server) as here:
        kind = await discovery.resolve(here.client, word, await discovery.all_resources(here.client))
        schemas = await _schemas(here, kind)
    schema = _of_kind(schemas, kind)
    for number, field in enumerate(fields):
        properties = _fields(_item(schema, schemas), schemas)
        if field not in properties:
            place = ".".join([word, *fields[:number]])
            known = ", ".join(sorted(properties)) or "none"
            raise Failed(f"{place} has no field {field}; fields: {known}")
        schema = properties[field]
    for line in _lines(kind, fields, schema, schemas, recursive=recursive):
        echo(line)


async def _schemas(here: Session, kind: Kind[Json]) -> Json:
    """The schemas of the kind's group. Raises `Failed` where the server has none."""
    root = f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
    try:
        response = await here.client.raw("GET", f"/openapi/v3/{root}", headers={"accept": "application/json"})
    except NotFound:
        raise Failed(f"the server has no OpenAPI document of {kind.api_version}") from None
    document: Json = msgspec.json.decode(await whole_body(response))
    schemas: Json = (document.get("components") or {}).get("schemas") or {}
    return schemas


def _of_kind(schemas: Json, kind: Kind[Json]) -> Json:
    group_version_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    for schema in schemas.values():
        if group_version_kind in (schema.get("x-kubernetes-group-version-kind") or ()):
            kind_schema: Json = schema
            return kind_schema
    raise Failed(f"the server does not document {kind.kind}")


def _resolved(schema: Json, schemas: Json) -> Json:
    """The schema with its reference resolved; its own description stays."""
    references = [schema, *(schema.get("allOf") or ())]
    for reference in references:
        if target := reference.get("$ref"):
            own = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            return {**schemas.get(target.removeprefix(_REF), {}), **own}
    return schema


def _item(schema: Json, schemas: Json) -> Json:
    """The schema whose fields can be named: that of the items of a list, and of the values of a map."""
    schema = _resolved(schema, schemas)
    inner = schema.get("items") or schema.get("additionalProperties")
    return _item(inner, schemas) if isinstance(inner, dict) else schema


def _fields(schema: Json, schemas: Json) -> Json:
    return _resolved(schema, schemas).get("properties") or {}


def _type(schema: Json, schemas: Json) -> str:
    schema = _resolved(schema, schemas)
    if isinstance(inner := schema.get("items"), dict):
        return f"[]{_type(inner, schemas)}"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"map[string]{_type(inner, schemas)}"
    if schema.get("x-kubernetes-int-or-string"):
        return "IntOrString"
    return str(schema.get("type") or "Object").replace("object", "Object")


def _lines(
    kind: Kind[Json], fields: list[str], schema: Json, schemas: Json, *, recursive: bool
) -> Iterator[str]:
    if kind.group:
        yield f"GROUP:      {kind.group}"
    yield f"KIND:       {kind.kind}"
    yield f"VERSION:    {kind.version}"
    yield ""
    if fields:
        yield f"FIELD: {fields[-1]} <{_type(schema, schemas)}>"
        yield ""
    yield "DESCRIPTION:"
    yield from _wrapped(_resolved(schema, schemas).get("description") or "(none)", 4)
    item = _item(schema, schemas)
    if _fields(item, schemas):
        yield ""
        yield "FIELDS:"
        yield from _list(item, schemas, 2, recursive=recursive)


def _list(schema: Json, schemas: Json, indent: int, *, recursive: bool) -> Iterator[str]:
    required = _resolved(schema, schemas).get("required") or ()
    for name, field in sorted(_fields(schema, schemas).items()):
        mark = " -required-" if name in required else ""
        yield f"{' ' * indent}{name} <{_type(field, schemas)}>{mark}"
        if recursive:
            # A schema that contains itself is behind a reference; definitions of kinds have none.
            if "$ref" not in field and "allOf" not in field:
                yield from _list(_item(field, schemas), schemas, indent + 2, recursive=True)
        else:
            yield from _wrapped(_resolved(field, schemas).get("description") or "", indent + 2)
            yield ""


def _wrapped(text: str, indent: int) -> Iterator[str]:
    for paragraph in text.split("\n"):
        yield from textwrap.wrap(
            paragraph, _WIDTH - indent, initial_indent=" " * indent, subsequent_indent=" " * indent
        )
