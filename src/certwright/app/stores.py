"""Store selection by `--store`."""

from __future__ import annotations

import asyncio
import difflib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from certwright.app import shared_files
from certwright.app.encryption import FILE_NAME, new_seal
from certwright.app.options import EtcdOptions, ServeOptions, StartError
from certwright.kube.apiserver.model import objects
from certwright.kube.store.contract import Row, Store, StoreError
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite

if TYPE_CHECKING:
    from certwright.app.etcd import Etcd

_log = logging.getLogger(__name__)

_SCHEMES = ("etcd://", "etcds://")
_SOON_S = 2.0


async def open_store(options: ServeOptions) -> Store:
    """Open the configured store. Raises `StartError`."""
    if options.store == "memory":
        return MemoryStore()
    try:
        if is_etcd(options):
            loop = asyncio.get_running_loop()
            # An etcd that does not answer is waited for during its `patience_s`.
            notice = loop.call_later(_SOON_S, _log.warning, "waiting for %s", options.store)
            try:
                return await etcd_of(options).open(new_seal(options), check_row)
            finally:
                notice.cancel()
        keys = (options.data_dir / FILE_NAME, options.data_dir / "pki" / "sa.key")
        return await open_sqlite(
            sqlite_path(options),
            seal=new_seal(options),
            check=check_row,
            expects_rows=any(key.exists() for key in keys),
        )
    except StoreError as error:
        raise StartError(str(error)) from error


def check_row(row: Row) -> str:
    """See `store.damage.Check`: all rows are objects, except the one that servers share."""
    return "" if row.key.bucket == shared_files.KEY.bucket else objects.problem_of(row)


def is_etcd(options: ServeOptions) -> bool:
    """Whether the store is an etcd. Raises `StartError` for etcd options without one."""
    if options.store is not None and options.store.startswith(_SCHEMES):
        return True
    if options.etcd != EtcdOptions():
        raise StartError("--etcd-… options need --store etcd://HOST:PORT")
    return False


def sqlite_path(options: ServeOptions) -> Path:
    """The path of the SQLite file. Raises `StartError` for a value that probably means another store."""
    if not options.store:
        return options.data_dir / "store.sqlite"
    path = Path(options.store)
    looks_like_path = path.parent != Path() or options.store.startswith("./") or path.suffix in _SUFFIXES
    if "://" in options.store or not (looks_like_path or path.exists()):
        raise StartError(f"--store {options.store}: {_meant(options.store)}")
    return path


_SUFFIXES = (".sqlite", ".sqlite3", ".db")


def _meant(text: str) -> str:
    """The fix for a `--store` that is neither a path nor a known type."""
    scheme, is_url, members = text.partition("://")
    if is_url:
        near = difflib.get_close_matches(scheme, ["etcds", "etcd"], n=1)
        hint = (
            f"did you mean {near[0]}://{members}?" if near else "write etcd://HOST:PORT or etcds://HOST:PORT"
        )
        return f"{scheme}:// is not known; {hint}"
    if difflib.get_close_matches(text.lower(), ["memory"]):
        return f"did you mean memory? (write ./{text} for a file of that name)"
    return f"not a path; write ./{text} for a file of that name, or memory, or etcd://HOST:PORT"


def etcd_of(options: ServeOptions) -> Etcd:
    """The configured etcd. Raises `StartError`."""
    try:
        from certwright.app.etcd import Etcd  # needs hpack, which is an extra
    except ImportError as error:
        raise StartError(
            f"--store {options.store} needs the package hpack ({error}): install certwright[etcd]"
        ) from error
    return Etcd(options)
