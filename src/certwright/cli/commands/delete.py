"""`certwright delete`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import click

from certwright.cli.access import Session, session
from certwright.cli.applier import reference, what, where
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    file_option,
    gathered,
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.resource_args import Selection, selection_arguments
from certwright.cli.sources import Manifests
from certwright.cli.watch_one import follow
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import Document
from certwright.kube.client import discovery

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How to delete: `wait` until the objects are gone, for `timeout_s` at most."""

    wait: bool
    timeout_s: float
    ignore_not_found: bool


@click.command(short_help="Delete objects.")
@click.argument("words", nargs=-1, metavar="[KIND NAME…]")
@file_option(required=False)
@selector_option
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@all_namespaces_option
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Return only when the objects are gone."
)
@timeout_option(default="60s", text="How long to wait for objects that others still have to clean up")
@click.option("--ignore-not-found", is_flag=True, help="An object that does not exist is no failure.")
@namespaced_server_options
@selection_arguments
@gathered("deletion", Deletion)
@asynchronous
async def command(
    *, server: ServerOptions, selection: Selection, manifests: Manifests | None, deletion: Deletion
) -> None:
    """Delete objects by name, by label, or those that files describe.

    The Secret of a deleted Certificate stays, as with cert-manager; delete it by name if you do not need it.

    \b
    Examples:
      certwright delete certificate web
      certwright delete -f examples/quickstart.yaml
      certwright delete certificates -l app=shop
    """
    if bool(selection.words) == bool(manifests):
        raise click.UsageError("name what to delete: either KIND NAME…, or -f FILE")
    async with session(server) as here:
        deleter = _Deleter(here, deletion)
        if manifests:
            await deleter.delete_all(manifests)
        else:
            await deleter.delete_selected(selection)
    if deleter.failed:
        raise AlreadyReported


class _Deleter:
    """Deletes objects in sequence and records failures."""

    def __init__(self, here: Session, deletion: Deletion) -> None:
        self.here = here
        self._wait_s = deletion.timeout_s if deletion.wait else None
        self._ignore_not_found = deletion.ignore_not_found
        self.failed = False

    async def delete_selected(self, selected: Selection) -> None:
        """Delete the selected objects."""
        for target in await selected.targets(self.here):
            for namespace, name in await selected.keys(self.here, target):
                await self._delete(target.kind, namespace, name)

    async def delete_all(self, manifests: Manifests) -> None:
        """Delete the objects in the documents, in reverse order: dependents before their dependencies."""
        for document in reversed(manifests.documents):
            if isinstance(document, Document):
                await self._delete_document(document)
            else:
                self._fail(str(document))

    async def _delete_document(self, document: Document) -> None:
        content = document.content
        metadata = content.get("metadata")
        try:
            kind = await discovery.kind_for(
                self.here.client, str(content.get("apiVersion", "")), str(content.get("kind", ""))
            )
        except (errors.ApiError, discovery.UnknownKind) as error:
            self._fail(f"{where(document)}: {what(content)}: {error}")
            return
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            self._fail(f"{where(document)}: {what(content)}: metadata.name: is missing")
            return
        namespace = str(metadata.get("namespace") or self.here.namespace) if kind.namespaced else ""
        await self._delete(kind, namespace, metadata["name"])

    async def _delete(self, kind: Kind[Json], namespace: str, name: str) -> None:
        try:
            await self.here.client.delete(kind, name, namespace, propagation="Background")
        except errors.NotFound as error:
            if not self._ignore_not_found:
                self._fail(str(error))
            return
        except errors.ApiError as error:
            self._fail(str(error))
            return
        if self._wait_s is not None and not await self._await_deletion(kind, namespace, name, self._wait_s):
            self._fail(
                f"{reference(kind, name)} is marked for deletion but still exists after {self._wait_s:g} s; "
                "its metadata.finalizers name the components that must clean up first"
            )
            return
        click.echo(f"{reference(kind, name)} deleted")

    async def _await_deletion(self, kind: Kind[Json], namespace: str, name: str, wait_s: float) -> bool:
        try:
            async with (
                asyncio.timeout(wait_s),
                aclosing(follow(self.here.client, kind, name, namespace)) as states,
            ):
                async for state in states:
                    if state is None or "deletionTimestamp" not in state["metadata"]:
                        return True
        except TimeoutError:
            return False
        return True

    def _fail(self, sentence: str) -> None:
        self.failed = True
        report_error(sentence)
