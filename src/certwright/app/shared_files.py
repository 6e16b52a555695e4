"""Identity files that servers on one store share: tokens, kubeconfigs and the CA of one server work at the
others.

The files that form a server's identity are stored in the data directory and in the store. The first server
stores its own files; later servers, with an empty directory, copy them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from certwright.app.options import StartError
from certwright.kube.store.contract import Changed, Exists, Key, Row, Store, StoreError
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.files import PRIVATE, PUBLIC, write_atomically
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError

# No resource has this bucket, so no API path leads to it.
KEY = Key("certwright.internal/servers", "", "identity")
_TOKEN = "pki/admin.token"  # noqa: S105 - a file
_CAS = ("pki/ca.crt", "pki/front-proxy-ca.crt")
_REQUIRED = ("pki/ca.crt", "pki/ca.key", "pki/sa.key", _TOKEN)
_FILES = (*_REQUIRED, "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key")
"""Those that are not required are missing in directories and stores of earlier versions."""
_FOLLOW_EVERY_S = 30.0
_log = logging.getLogger(__name__)

_Contents = dict[str, bytes]
_decode = json_decoder(_Contents).decode


async def share(store: Store, data_dir: Path, make: Callable[[], object]) -> None:
    """Synchronize directory and store; `make` creates the files that both lack.

    Raises `StartError` if both have files and they differ, `OSError`, `StoreError`.
    """
    while True:
        row = await store.get(KEY)
        if row is not None:
            _adopt(row, data_dir)
        stored = _decode(row.body) if row is not None else {}
        before = [name for name in _FILES if (data_dir / name).exists()]
        make()
        own = {name: (data_dir / name).read_bytes() for name in _FILES if (data_dir / name).exists()}
        if own.keys() <= stored.keys():
            return
        contents = msgspec.json.encode({**own, **stored})
        try:
            await store.put(KEY, partial(_row_of, contents), expect=row.revision if row is not None else 0)
        except (Exists, Changed):
            # Another server has started at the same moment.
            for name in own.keys() - set(before):
                (data_dir / name).unlink()
        else:
            return


def _row_of(contents: bytes, _revision: int) -> tuple[bytes, bytes]:
    return b"", contents


async def follow_token(store: Store, data_dir: Path, clock: Clock) -> None:
    """Keep the administrator's token the same in the directory and the store, for ever. A token that
    `certwright user rotate-admin` has replaced here is stored; a token replaced elsewhere is written here,
    and into the kubeconfig."""
    path = data_dir / _TOKEN
    synced = await asyncio.to_thread(path.read_bytes)
    while True:
        await clock.sleep(_FOLLOW_EVERY_S)
        try:
            synced = await _follow_once(store, data_dir, synced)
        except (StoreError, OSError) as error:
            _log.warning("the administrator's token is not compared with that of the store: %s", error)


async def _follow_once(store: Store, data_dir: Path, synced: bytes) -> bytes:
    row = await store.get(KEY)
    own = await asyncio.to_thread((data_dir / _TOKEN).read_bytes)
    if row is None or not own:
        return synced
    contents = _decode(row.body)
    stored = contents[_TOKEN]
    if stored == own:
        return own
    if stored == synced:
        changed = msgspec.json.encode({**contents, _TOKEN: own})
        # If another server writes at this moment, this write fails; the next turn reads that server's.
        await store.put(KEY, lambda _: (b"", changed), expect=row.revision)
        return own
    await asyncio.to_thread(_replace_token, data_dir, own, stored)
    return stored


def _replace_token(data_dir: Path, before: bytes, after: bytes) -> None:
    _put(data_dir / _TOKEN, after, mode=PRIVATE)
    config = data_dir / "kubeconfig"
    if config.exists():
        write_atomically(config, config.read_bytes().replace(before, after))


def pack(data_dir: Path) -> bytes | None:
    """The files of a directory in one value; None if a required one is missing. Raises `OSError`."""
    if not all((data_dir / name).exists() for name in _REQUIRED):
        return None
    there = [name for name in _FILES if (data_dir / name).exists()]
    return msgspec.json.encode({name: (data_dir / name).read_bytes() for name in there})


def unpack(contents: bytes, data_dir: Path) -> None:
    """Write the files into a directory that has none of them. Raises `OSError`."""
    if any((data_dir / name).exists() for name in _FILES):
        return
    for name, content in _decode(contents).items():
        _put(data_dir / name, content, mode=PUBLIC if name in _CAS else PRIVATE)


def _put(path: Path, content: bytes, *, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content, mode=mode)


def _is_same(name: str, own: bytes, stored: bytes) -> bool:
    """Each server renews the CAs by itself, so the store has the first ones; their keys stay."""
    if name not in _CAS or own == stored:
        return own == stored
    try:
        ours, theirs = read_certificate(own), read_certificate(stored)
    except PkiError:
        return False
    return ours.public_key_der == theirs.public_key_der


def _adopt(row: Row, data_dir: Path) -> None:
    for name, content in _decode(row.body).items():
        path = data_dir / name
        if not path.exists():
            _put(path, content, mode=PUBLIC if name in _CAS else PRIVATE)
        elif not _is_same(name, path.read_bytes(), content):
            raise StartError(
                f"{path} is not the one that the servers on this store share: choose another --data-dir, or"
                f" move {path.parent} away"
            )
