"""Store selection by `--store`."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from certwright.app import shared_files
from certwright.app.encryption import new_seal
from certwright.app.options import EtcdOptions, ServeOptions, StartError
from certwright.kube.apiserver.model import objects
from certwright.kube.store.contract import Row, Store, StoreError
from certwright.kube.store.mark import MarkFile
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite

if TYPE_CHECKING:
    from certwright.kube.store.etcd.client import Access

_SCHEMES = ("etcd://", "etcds://")
_PORT = 2379


async def open_store(options: ServeOptions) -> Store:
    """Open the configured store. Raises `StartError`."""
    if options.store == "memory":
        return MemoryStore()
    try:
        if is_etcd(options):
            return await _open_etcd(options)
        return await open_sqlite(sqlite_path(options), seal=new_seal(options), check=check_row)
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


async def _open_etcd(options: ServeOptions) -> Store:
    access = etcd_access(options)
    from certwright.kube.store.etcd.store import open_etcd  # see `etcd_access`

    return await open_etcd(
        access,
        seal=new_seal(options),
        check=check_row,
        prefix=options.etcd.prefix,
        compact_every_s=options.etcd.compaction_interval.total_seconds(),
        marks=etcd_mark(options),
    )


def etcd_mark(options: ServeOptions) -> MarkFile:
    """The file in which a server records its store in etcd."""
    return MarkFile(
        options.data_dir / "etcd.mark",
        f"what {options.store} holds below {options.etcd.prefix}",
        remedy="restore a snapshot of etcd",
    )


def etcd_access(serve_options: ServeOptions) -> Access:
    """Access to the configured etcd. Raises `StartError`."""
    where, options = serve_options.store or "", serve_options.etcd
    # Our child processes never use its channels, and it need not log every program that is started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # Imported here because grpcio is an extra and costs 20 MB, and no other store needs it.
    try:
        from certwright.kube.store.etcd.client import Access
    except ImportError as error:
        raise StartError(
            f"--store {where} needs the package grpcio ({error}): install certwright[etcd]"
        ) from error
    scheme, _, members = where.partition("://")
    access = Access(
        tuple(_member(member) for member in members.rstrip("/").split(",")),
        tls=scheme == "etcds",
        ca_file=options.ca_file,
        cert_file=options.cert_file,
        key_file=options.key_file,
    )
    if (options.cert_file is None) != (options.key_file is None):
        raise StartError("--etcd-certfile and --etcd-keyfile go together")
    if not access.tls and (options.ca_file or options.cert_file):
        raise StartError(f"--store {where}: certificates need TLS; begin it with etcds://")
    return _with_user(access, options)


def _member(text: str) -> str:
    """`HOST:PORT`, with the default port if it is missing."""
    host, _, port = text.rpartition(":")
    if not text or (port and host and not (port.isdigit() or text.endswith("]"))):
        raise StartError("--store etcd://HOST:PORT[,HOST:PORT…]: one member at least, without paths")
    return text if host and port.isdigit() else f"{text}:{_PORT}"


def _with_user(access: Access, options: EtcdOptions) -> Access:
    if options.user is None:
        return access
    if options.password_file is None:
        raise StartError("--etcd-user needs --etcd-password-file")
    try:
        password = options.password_file.read_text().strip("\r\n")
    except OSError as error:
        raise StartError(f"--etcd-password-file {options.password_file}: {error.strerror}") from error
    return replace(access, user=options.user, password=password)
