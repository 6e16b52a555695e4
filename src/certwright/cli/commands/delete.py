"""`certwright delete`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.applier import Refused, check_name, refuse_at, what, where
from certwright.cli.bulk import SendingOrder, Tally, each_in_order, follow
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.flags import gathered
from certwright.cli.format import echo, reference
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    file_option,
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.resource_args import Selection, Target, not_found, selection_arguments
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.api.manifests import Document, Manifests
from certwright.kube.client import discovery

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How to delete: `wait` until the objects are gone, for `timeout_s` at most."""

    wait: bool
    timeout_s: float
    ignore_not_found: bool


@click.command(short_help="Delete objects.")
@click.argument("words", nargs=-1, metavar="[KIND NAME…]", shell_complete=completion.objects())
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


@dataclass(frozen=True, slots=True)
class _Item:
    """An object to delete, or the reason why it is none."""

    kind: Kind[Json] | None = None
    namespace: str = ""
    name: str = ""
    problem: str = ""

    @property
    def content(self) -> Json:
        """As much of the object as `bulk.SendingOrder` needs."""
        metadata = {"namespace": self.namespace, "name": self.name}
        return {"kind": self.kind.kind if self.kind is not None else "", "metadata": metadata}


class _Deleter:
    """Deletes objects, many of them at the same time, and records failures."""

    def __init__(self, here: Session, deletion: Deletion) -> None:
        self.here = here
        self._wait_s = deletion.timeout_s if deletion.wait else None
        self._ignore_not_found = deletion.ignore_not_found
        self.failed = False

    async def delete_selected(self, selected: Selection) -> None:
        """Delete the selected objects."""
        items = []
        for target in await selected.targets(self.here):
            keys = await selected.keys(self.here, target)
            if not keys:
                echo(f"no {target.kind.plural} to delete", err=True)
            items += [_Item(target.kind, namespace, name) for namespace, name in keys]
        await self._delete_all(items)

    async def delete_all(self, manifests: Manifests) -> None:
        """Delete the objects in the documents, in reverse order: dependents before their dependencies."""
        known: dict[tuple[str, str], Kind[Json] | str] = {}
        items = []
        for document in reversed(manifests.documents):
            if isinstance(document, Document):
                items.append(await self._item(document, known))
            else:
                items.append(_Item(problem=str(document)))
        await self._delete_all(items)

    async def _item(self, document: Document, known: dict[tuple[str, str], Kind[Json] | str]) -> _Item:
        content = document.content
        key = str(content.get("apiVersion", "")), str(content.get("kind", ""))
        if key not in known:
            try:
                known[key] = await discovery.kind_for(self.here.client, *key)
            except (errors.ApiError, discovery.UnknownKind) as error:
                known[key] = str(error)
        kind, place = known[key], f"{where(document)}: {what(content)}"
        if isinstance(kind, str):
            return _Item(problem=f"{place}: {kind}")
        try:
            check_name(content)
        except Refused as refusal:
            return _Item(problem="; ".join(refuse_at(document, refusal)))
        metadata = content["metadata"]
        namespace = str(metadata.get("namespace") or self.here.namespace) if kind.namespaced else ""
        return _Item(kind, namespace, metadata["name"])

    async def _delete_all(self, items: Sequence[_Item]) -> None:
        order, tally = SendingOrder(len(items)), Tally(len(items))
        results = each_in_order(items, self._delete, alone=lambda item: order.alone(item.content))
        async with aclosing(results):
            async for item, problem in results:
                if problem:
                    tally.add("failed")
                    self.failed = True
                    report_error(problem)
                elif problem is None and item.kind is not None:
                    tally.add("deleted")
                    echo(f"{reference(item.kind, item.name)} deleted")
                else:
                    tally.add("not found")
        tally.summarize()

    async def _delete(self, item: _Item) -> str | None:
        """None once the object is deleted, else why not; empty for one that did not exist and need not."""
        if item.kind is None:
            return item.problem
        kind, namespace, name = item.kind, item.namespace, item.name
        try:
            gone = await self.here.client.delete(kind, name, namespace, propagation="Background")
        except errors.NotFound as error:
            if self._ignore_not_found:
                return ""
            return await not_found(self.here.client, error, Target(kind, namespace, (name,)))
        except errors.ApiError as error:
            return str(error)
        if gone or self._wait_s is None or await self._await_deletion(kind, namespace, name, self._wait_s):
            return None
        return (
            f"{reference(kind, name)} is marked for deletion but still exists after {self._wait_s:g} s; "
            "its metadata.finalizers name the components that must clean up first"
        )

    async def _await_deletion(self, kind: Kind[Json], namespace: str, name: str, wait_s: float) -> bool:
        try:
            async with (
                asyncio.timeout(wait_s),
                aclosing(follow(self.here.client, kind, namespace, name)) as states,
            ):
                async for changed in states:
                    state = changed.get((namespace, name))
                    if state is None or "deletionTimestamp" not in state["metadata"]:
                        return True
        except TimeoutError:
            return False
        return True
