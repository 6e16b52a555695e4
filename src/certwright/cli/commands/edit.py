"""`certwright edit`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.applier import three_way_patch
from certwright.cli.errors import Failed
from certwright.cli.format import echo, reference
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.resource_args import fetch, resolve
from certwright.kube.api import manifests
from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import DocumentError
from certwright.kube.api.yaml_codec import write_yaml

Json = dict[str, Any]
_HEADER = (
    "# Save and leave the editor to change the object; an unchanged or empty file changes nothing.\n"
    "# Lines that begin with # are ignored.\n"
)
_EDITORS = ("KUBE_EDITOR", "VISUAL", "EDITOR")
_IDENTITY = ("apiVersion", "kind")


@click.command(short_help="Change an object in an editor.")
@click.argument("words", nargs=-1, required=True, metavar="KIND NAME", shell_complete=completion.objects())
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...]) -> None:
    """Open an object as YAML in $KUBE_EDITOR, $VISUAL or $EDITOR, and write it when the editor ends.

    What the server refuses is opened again, with the reason. If that is left unchanged, the text is kept in
    a file, whose name is printed.

    \b
    Examples:
      certwright edit certificate web
      certwright edit issuer/example-ca -n shop
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and not any(map(os.environ.get, _EDITORS)):
        raise Failed(
            "edit needs a terminal, or in $EDITOR a program that needs none; `apply` changes objects too"
        )
    async with session(server) as here:
        targets = await resolve(here, words)
        if len(targets) != 1 or len(targets[0].names) != 1:
            raise click.UsageError("name one object: KIND NAME or KIND/NAME")
        kind, (name,) = targets[0].kind, targets[0].names
        live = await fetch(here, kind, name)
        echo(f"{reference(kind, name)} {await _edit(here, kind, live)}")


async def _edit(here: Session, kind: Kind[Json], live: Json) -> str:
    """Edit until the server accepts; what was done. Raises `Failed`."""
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    before = {**live, "metadata": metadata}
    text, problem = write_yaml(before), ""
    original = text
    while True:
        shown = _HEADER + "".join(f"# error: {line}\n" for line in problem.splitlines()) + text
        edited = await asyncio.to_thread(_open, shown)
        changed = text if edited is None else _without_comments(edited)
        if not changed.strip() or changed == text:
            if problem and changed.strip():
                raise Failed(f"{problem}; the text is kept in {_keep(changed)}")
            return "not changed"
        text = changed
        if text == original:
            return "not changed"
        try:
            # A patch: the controllers may have changed the status, and so the revision, in the meantime.
            patch = three_way_patch(before, _read(text, live), before)
            await here.client.patch(kind, metadata["name"], metadata.get("namespace", ""), patch, strict=True)
        except (ApiError, Failed) as error:
            problem = str(error)
            continue
        return "edited"


def _open(text: str) -> str | None:
    try:
        return click.edit(text, editor=os.environ.get("KUBE_EDITOR"), extension=".yaml")
    except click.ClickException as error:
        # click's: `nosuch: Editing failed: [Errno 2] …`.
        name = next(filter(None, map(os.environ.get, _EDITORS)), "the editor")
        raise Failed(
            f"{name} could not be started, or failed; set KUBE_EDITOR or EDITOR to an installed editor"
        ) from error


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _read(text: str, live: Json) -> Json:
    """The edited object. Raises `Failed` if its identity has changed."""
    parsed = manifests.read_documents(text.encode(), source="the edited object")
    documents = list(parsed)
    for document in documents:
        if isinstance(document, DocumentError):
            raise Failed(str(document))
    if len(documents) != 1:
        raise Failed(f"the edited object: {len(documents)} documents; there must be one")
    (document,) = documents
    assert not isinstance(document, DocumentError)
    obj = document.content
    metadata = obj.get("metadata")
    is_same = isinstance(metadata, dict) and all(
        metadata.get(key) == live["metadata"].get(key) for key in ("name", "namespace")
    )
    if not is_same or any(obj.get(key) != live.get(key) for key in _IDENTITY):
        raise Failed("apiVersion, kind, name and namespace cannot be edited; create another object instead")
    return obj


def _keep(text: str) -> Path:
    """A file of the user's own with the text, which may contain secrets."""
    descriptor, name = tempfile.mkstemp(prefix="certwright-edit-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
