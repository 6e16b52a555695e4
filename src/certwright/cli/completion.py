"""Completion of kinds, names and namespaces in the shell: asks the server, for a moment at most.

A completion prints nothing but candidates: without a server, or with a slow one, there are none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from certwright.cli import lazy
from certwright.cli.errors import Failed

_PATIENCE_S: Final = 1.5
_KINDS: Final = (
    "certificates",
    "certificaterequests",
    "issuers",
    "clusterissuers",
    "issuersets",
    "clusterissuersets",
    "deliveries",
    "orders",
    "challenges",
    "secrets",
    "configmaps",
    "events",
    "namespaces",
    "customresourcedefinitions",
)
"""The kinds that are offered: those that users of certificates name."""
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of the server."""
    return _starting(_names(context, "namespaces", everywhere=True), incomplete)


def names_of(*kinds: str) -> Complete:
    """Complete with the names of the objects of these kinds."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return _starting([name for kind in kinds for name in _names(context, kind)], incomplete)

    return complete


def objects(*default: str) -> Complete:
    """Complete `KIND NAME…` and `KIND/NAME`; a name alone is one of the `default` kinds, if there are."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        kind, slash, _ = incomplete.partition("/")
        if slash:
            return _starting([f"{kind}/{name}" for name in _names(context, kind)], incomplete)
        before = context.params.get(parameter.name or "") or ()
        if before and "/" not in before[0]:
            return _starting([name for name in _names(context, before[0]) if name not in before], incomplete)
        names = [name for kind in default for name in _names(context, kind)]
        return _starting([*names, *_KINDS], incomplete)

    return complete


def _starting(words: list[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _names(context: click.Context, kind: str, *, everywhere: bool = False) -> list[str]:
    """The names of the objects of the kind in the chosen namespace; none if the server does not answer."""
    options = context.params

    async def ask() -> list[str]:
        server = lazy.options.ServerOptions(
            kubeconfig=options.get("kubeconfig"),
            context=options.get("context"),
            namespace=options.get("namespace"),
        )
        async with lazy.access.session(server) as here:
            (target, *_) = await lazy.resource_args.resolve(here, (kind,))
            namespace = "" if everywhere or options.get("all_namespaces") else target.namespace
            return [
                name for _, name in await lazy.resource_args.names_of(here.client, target.kind, namespace)
            ]

    import asyncio  # a quarter of the time that --help takes

    async def bounded() -> list[str]:
        return await asyncio.wait_for(ask(), _PATIENCE_S)

    # What is printed would stand in the middle of the command line.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        try:
            return asyncio.run(bounded())
        except (Failed, click.UsageError, lazy.api_errors.ApiError, OSError, TimeoutError):
            return []
