"""Common options of `backup` and `restore`, and their error handling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from certwright.cli import daemon, etcd_flags, lazy
from certwright.cli.errors import Failed
from certwright.cli.options import gathered

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """The store, by the flags of `serve`."""

    data_dir: Path
    store: str | None
    encryption_key_file: Path | None


_STORE = click.option(
    "--store",
    metavar="PATH|etcd://HOST:PORT[,…]",
    help="Store of the objects, as for `certwright serve`.  [default: a file in DIR]",
)
_DATA_DIR = daemon.data_dir_option(
    "Directory of the store and the server's own keys, as for `certwright serve`."
)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags; the function gets them as `store: StoreFlags` and `etcd: etcd_flags.EtcdFlags`."""
    with_etcd = etcd_flags.etcd_options(daemon.ENCRYPTION_KEY_FILE(gathered("store", StoreFlags)(command)))
    return _DATA_DIR(_STORE(with_etcd))


def options(store: StoreFlags, etcd: etcd_flags.EtcdFlags) -> lazy.app.ServeOptions:
    """The options of the server that uses the store. Raises `Failed`."""
    if store.store == "memory":
        raise Failed("--store memory keeps nothing that could be saved or restored")
    return lazy.app.ServeOptions(etcd=etcd.options, **asdict(store))


def outcome(work: Coroutine[Any, Any, T]) -> T:
    """Run the work. Raises `Failed`."""
    try:
        return asyncio.run(work)
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
