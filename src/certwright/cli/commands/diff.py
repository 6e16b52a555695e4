"""`certwright diff`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import click
import msgspec

from certwright.cli.access import session
from certwright.cli.applier import LAST_APPLIED, Applier, Preview, Refused, refuse_at
from certwright.cli.bulk import each_in_order
from certwright.cli.errors import AlreadyReported, Failed, report_error
from certwright.cli.format import echo, reference
from certwright.cli.options import ServerOptions, asynchronous, file_option, namespaced_server_options
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.api.manifests import Document, DocumentError, Manifests
from certwright.kube.api.yaml_codec import write_yaml

Json = dict[str, Any]
_DIFFERS, _FAILED = 1, 2
_OF_THE_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")


class _CannotCompare(Failed):
    """No comparison was possible."""

    exit_code = _FAILED


class _SomeFailed(AlreadyReported):
    """Some documents could not be compared."""

    exit_code = _FAILED


class _Result(msgspec.Struct, frozen=True):
    """The difference of one document, or why it could not be compared."""

    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status if there were no other document."""
        return _FAILED if self.problems else _DIFFERS if self.lines else 0


@click.command(short_help="Show what `apply` would change.")
@file_option(required=True)
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, manifests: Manifests) -> None:
    """Show what `certwright apply` would change, as a unified diff from the live objects.

    The server computes the result (a dry run), defaults and admission included. Values of Secrets are not
    shown. Exit status: 0 no difference, 1 differences, 2 failed.

    \b
    Examples:
      certwright diff -f examples/quickstart.yaml
      certwright diff -f manifests/ -n shop
    """
    try:
        async with session(server) as here:
            applier = Applier(
                here.client, default_namespace=here.namespace, only_namespace=server.namespace, dry_run=True
            )
            status = await _diff_all(applier, manifests)
    except Failed as error:
        raise _CannotCompare(error.message) from error
    except (ApiError, Unreachable) as error:
        raise _CannotCompare(str(error)) from error
    if status == _FAILED:
        raise _SomeFailed
    if status == _DIFFERS:
        raise AlreadyReported


async def _diff_all(applier: Applier, manifests: Manifests) -> int:
    """Print the differences of all documents, in their order; the exit status."""
    status = 0
    results = each_in_order(
        manifests.documents,
        lambda document: _diff(applier, document),
        # Dry runs do not depend on one another.
        alone=lambda _: False,
    )
    async with aclosing(results):
        async for _, result in results:
            for line in result.lines:
                echo(line)
            for sentence in result.problems:
                report_error(sentence)
            status = max(status, result.status)
    if not manifests.documents:
        report_error(f"{', '.join(manifests.names)} contains no objects")
        return _FAILED
    return status


async def _diff(applier: Applier, document: Document | DocumentError) -> _Result:
    if isinstance(document, DocumentError):
        return _Result(problems=(str(document),))
    try:
        return _Result(lines=tuple(_lines(await applier.preview(document))))
    except Refused as refusal:
        return _Result(problems=tuple(refuse_at(document, refusal)))


def _lines(preview: Preview) -> Iterator[str]:
    name = f"{reference(preview.kind, preview.name)}"
    name += f" (namespace {preview.namespace})" if preview.namespace else ""
    before, after = preview.before, preview.after
    if preview.kind.kind == "Secret":
        # Secrets with stars for their values, as in kubectl: different ones where the values differ.
        old = (before or {}).get("data") or {}
        new = after.get("data") or {}
        changed = {key for key in old.keys() & new.keys() if old[key] != new[key]}
        hidden_old = {key: "*** (before)" if key in changed else "***" for key in old}
        hidden_new = {key: "*** (after)" if key in changed else "***" for key in new}
        before, after = {**before, "data": hidden_old} if before else None, {**after, "data": hidden_new}
    return difflib.unified_diff(_yaml(before), _yaml(after), f"live {name}", f"merged {name}", lineterm="")


def _yaml(obj: Json | None) -> list[str]:
    """The object without what the server sets with every write."""
    if obj is None:
        return []
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OF_THE_SERVER}
    annotations = {k: v for k, v in (metadata.pop("annotations", None) or {}).items() if k != LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    return write_yaml({**obj, "metadata": dict(sorted(metadata.items()))}).splitlines()
