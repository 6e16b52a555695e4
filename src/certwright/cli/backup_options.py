"""Common options of `backup` and `restore`, and their error handling."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from certwright.cli import daemon, etcd_flags
from certwright.cli.errors import Failed

if TYPE_CHECKING:
    from certwright import app

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """The store, by the flags of `serve`."""

    data_dir: Path
    store: str | None
    encryption_key_file: Path | None


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags; the function gets them as `store: StoreFlags` and `etcd: etcd_flags.EtcdFlags`."""

    @functools.wraps(command)
    def gather(
        *args: Any, data_dir: Path, store: str | None, encryption_key_file: Path | None, **given: Any
    ) -> Any:
        flags = StoreFlags(data_dir=data_dir, store=store, encryption_key_file=encryption_key_file)
        return command(*args, store=flags, **given)

    named = click.option(
        "--store",
        metavar="PATH|etcd://HOST:PORT[,…]",
        help="Store of the objects, as for `certwright serve`.  [default: a file in DIR]",
    )
    data_dir = daemon.data_dir_option(
        "Directory of the store and the server's own keys, as for `certwright serve`."
    )
    return data_dir(named(etcd_flags.etcd_options(daemon.ENCRYPTION_KEY_FILE(gather))))


def options(store: StoreFlags, etcd: etcd_flags.EtcdFlags) -> app.ServeOptions:
    """The options of the server that uses the store. Raises `Failed`."""
    if store.store == "memory":
        raise Failed("--store memory keeps nothing that could be saved or restored")
    from certwright import app  # see `backup`

    return app.ServeOptions(etcd=app.EtcdOptions(**asdict(etcd)), **asdict(store))


def outcome(work: Coroutine[Any, Any, T]) -> T:
    """Run the work. Raises `Failed`."""
    from certwright import app  # see `backup`

    try:
        return asyncio.run(work)
    except app.StartError as error:
        raise Failed(str(error)) from error
