"""`certwright delete`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
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
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.resource_args import resolve
from certwright.cli.sources import Manifests
from certwright.cli.watch_one import follow
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import Document
from certwright.kube.client import discovery

Json = dict[str, Any]


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
@asynchronous
async def command(
    *,
    server: ServerOptions,
    words: tuple[str, ...],
    manifests: Manifests | None,
    selector: str,
    everything: bool,
    all_namespaces: bool,
    wait: bool,
    timeout_s: float,
    ignore_not_found: bool,
) -> None:
    """Delete objects by name, by label, or those that files describe.

    The Secret of a deleted Certificate stays, as with cert-manager; delete it by name if you do not need it.

    \b
    Examples:
      certwright delete certificate web
      certwright delete -f examples/quickstart.yaml
      certwright delete certificates -l app=shop
    """
    if bool(words) == bool(manifests):
        raise click.UsageError("name what to delete: either KIND NAME…, or -f FILE")
    deleter = _Deleter(wait_s=timeout_s if wait else None, ignore_not_found=ignore_not_found)
    async with session(server) as here:
        deleter.here = here
        if manifests:
            await deleter.delete_all(manifests)
        else:
            await deleter.delete_words(words, selector, everything=everything, everywhere=all_namespaces)
    if deleter.failed:
        raise AlreadyReported


class _Deleter:
    """Deletes objects in sequence and records failures."""

    here: Session

    def __init__(self, *, wait_s: float | None, ignore_not_found: bool) -> None:
        self._wait_s = wait_s
        self._ignore_not_found = ignore_not_found
        self.failed = False

    async def delete_words(
        self, words: tuple[str, ...], selector: str, *, everything: bool, everywhere: bool
    ) -> None:
        """Delete the objects that the arguments and the selector choose."""
        for target in await resolve(self.here, words, all_namespaces=everywhere):
            if not target.names and not selector and not everything:
                raise click.UsageError(f"which {target.kind.plural}? Give names, -l SELECTOR, or --all")
            if target.names:
                chosen = [(target.namespace, name) for name in target.names]
            else:
                listing = await self.here.client.list(target.kind, target.namespace, labels=selector)
                chosen = [(m.get("namespace", ""), m["name"]) for m in (o["metadata"] for o in listing.items)]
            for namespace, name in chosen:
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
        if self._wait_s is not None and not await self._gone(kind, namespace, name, self._wait_s):
            self._fail(
                f"{reference(kind, name)} is marked for deletion but still exists after {self._wait_s:g} s; "
                "its metadata.finalizers name the components that must clean up first"
            )
            return
        click.echo(f"{reference(kind, name)} deleted")

    async def _gone(self, kind: Kind[Json], namespace: str, name: str, wait_s: float) -> bool:
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
