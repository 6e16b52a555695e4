"""`certwright backup` and `restore`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from certwright.cli import daemon, lazy, server_flags
from certwright.cli.access import DEFAULT_DATA_DIR
from certwright.cli.errors import AlreadyReported, Failed, report_warning
from certwright.cli.flags import directory, flag, flag_options, group, values_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """The store, by the flags of `serve`."""

    data_dir: Path = directory(
        "--data-dir",
        "Directory of the store and the server's own keys, as for `certwright serve`.",
        default=DEFAULT_DATA_DIR,
    )
    store: str | None = flag(
        "--store",
        "Store of the objects, as for `certwright serve`.  [default: a file in DIR]",
        metavar="PATH|etcd://HOST:PORT[,…]",
    )
    etcd: server_flags.EtcdFlags = group(server_flags.EtcdFlags)
    encryption_key_file: Path | None = daemon.ENCRYPTION_KEY_FILE

    @property
    def options(self) -> lazy.app.ServeOptions:
        """The options of the server that uses the store. Raises `Failed`."""
        if self.store == "memory":
            raise Failed("--store memory keeps nothing that could be saved or restored")
        return lazy.app.ServeOptions(etcd=self.etcd.options, **values_of(self))


def outcome(work: Coroutine[Any, Any, T]) -> T:
    """Run the work. Raises `Failed`."""
    try:
        return asyncio.run(work)
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error


@click.command(short_help="Save all objects of a server's store in a file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@flag_options("store", StoreFlags)
def command(*, file: Path, force: bool, store: StoreFlags) -> None:
    """Save all objects, and the server's own keys, in FILE, whether or not the server is running.

    Reads the store directly: run it on the server's machine, as the same user, with the --data-dir and
    --store of `certwright serve`. The backup is a consistent snapshot. Secrets are encrypted in FILE as they
    are in the store, and only its owner can read it. FILE does not contain the key of the Secrets: keep a
    copy of that key, apart from FILE.

    An object whose stored form is damaged is left out: a warning names it, and the exit status is 1, although
    FILE is good for all others.

    \b
    Examples:
      certwright backup certwright-$(date +%F).backup
      certwright backup --data-dir /var/lib/certwright /mnt/backups/certwright.backup
      certwright backup --store etcds://e1:2379 --etcd-cafile ca.crt certwright.backup
    """
    if str(file) == "-":
        raise click.UsageError("a backup is written to a file, because it is complete or missing: name one")
    if file.exists() and not force:
        raise Failed(f"{file} exists; name another file, or replace it with --force")
    done = outcome(lazy.app.back_up(store.options, file))
    click.echo(f"{done.objects} objects at revision {done.revision} saved in {file}")
    if done.wrapped_by is None:
        click.echo("Its Secrets are NOT encrypted: keep it as safe as they are.")
    else:
        click.echo(f"Its Secrets need the key of fingerprint {done.wrapped_by} ({done.source}); keep a copy.")
    for sentence in done.left_out:
        report_warning(f"not saved: {sentence}")
    if done.left_out:
        raise AlreadyReported


_NOT_OF_THE_STORE = ("force", "etcd_compaction_interval")


@click.command(short_help="Fill an empty store from a file that `certwright backup` wrote.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Replace an existing store; its contents are lost.")
@flag_options("store", StoreFlags)
def restore(*, file: Path, force: bool, store: StoreFlags) -> None:
    """Fill an empty store from FILE; stop the server first, and with etcd all servers.

    The store may be of another type than the saved one: e.g. from SQLite into etcd, or the other way. The key
    of the Secrets in FILE must be where the server reads it. A directory without the server's own keys gets
    those of the backup, so tokens and kubeconfigs stay valid. Connected clients list all objects
    again.

    \b
    Examples:
      certwright restore certwright.backup
      certwright restore --data-dir /var/lib/certwright --force certwright.backup
      certwright restore --encryption-key-file saved.key certwright.backup
    """
    done = outcome(lazy.app.restore(store.options, file, force=force))
    when = datetime.fromtimestamp(done.made, UTC).strftime("%Y-%m-%d %H:%M UTC")
    click.echo(f"{done.objects} objects of {when} restored; start the server with `{_serve()}`")


def _serve() -> str:
    """The `serve` command for the restored store: the flags that this command was given."""
    context, words = click.get_current_context(), ["certwright", "serve"]
    for option in context.command.params:
        name = option.name or ""
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not is_given or not isinstance(option, click.Option) or name in _NOT_OF_THE_STORE:
            continue
        words.append(option.opts[0])
        if not option.is_flag:
            words.append(str(context.params[name]))
    return shlex.join(words)
