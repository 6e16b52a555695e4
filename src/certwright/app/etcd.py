"""etcd as the store of a server: access, opening, backup and restore."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from certwright.app.options import ServeOptions, StartError
from certwright.kube.store.backup_file import Dump
from certwright.kube.store.contract import Store
from certwright.kube.store.damage import Check
from certwright.kube.store.envelope import Seal
from certwright.kube.store.etcd.backup import Filling, dump_etcd, refilling
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.identity import check_owner
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.mark import MarkFile

_PORT = 2379


class Etcd:
    """The etcd of `--store` and `--etcd-…`. Raises `StartError` for invalid options."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options.etcd
        self._access = _access(options)
        self._mark = MarkFile(
            options.data_dir / "etcd.mark",
            f"what {options.store} holds below {options.etcd.prefix}",
            remedy="restore a snapshot of etcd",
        )

    async def open(self, seal: Seal, check: Check) -> Store:
        """Open the store. Raises `StoreError`, `StartError`."""
        try:
            await check_owner(self._access, self._options.prefix, self._options.owner, self._mark)
        except OSError as error:
            raise StartError(f"{error.filename} cannot be read: {error.strerror}") from error
        return await open_etcd(
            self._access,
            seal=seal,
            check=check,
            prefix=self._options.prefix,
            compact_every_s=self._options.compaction_interval.total_seconds(),
            quota_bytes=self._options.quota_backend_bytes,
            upgrade_format=self._options.upgrade_format,
            marks=self._mark,
        )

    def dump(self, seal: Seal, check: Check) -> AbstractAsyncContextManager[Dump]:
        """All objects, at one revision."""
        return dump_etcd(self._access, self._options.prefix, seal, check)

    def refilling(self, seal: Seal, *, force: bool) -> AbstractAsyncContextManager[Filling]:
        """The emptied store; `force` empties it first."""
        return refilling(self._access, self._options.prefix, seal, force=force)

    def remove_mark(self) -> None:
        """Remove the file in which a server records its store in etcd: the contents are new."""
        self._mark.remove()


def _access(serve_options: ServeOptions) -> Access:
    where, options = serve_options.store or "", serve_options.etcd
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
    if options.user is None:
        return access
    if options.password_file is None:
        raise StartError("--etcd-user needs --etcd-password-file")
    try:
        password = options.password_file.read_text().strip("\r\n")
    except OSError as error:
        raise StartError(f"--etcd-password-file {options.password_file}: {error.strerror}") from error
    return replace(access, user=options.user, password=password)


def _member(text: str) -> str:
    """`HOST:PORT`, with the default port if it is missing."""
    host, _, port = text.rpartition(":")
    if not text or (port and host and not (port.isdigit() or text.endswith("]"))):
        raise StartError("--store etcd://HOST:PORT[,HOST:PORT…]: one member at least, without paths")
    return text if host and port.isdigit() else f"{text}:{_PORT}"
