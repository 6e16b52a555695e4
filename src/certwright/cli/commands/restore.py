"""`certwright restore`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

import click

from certwright.cli import backup_options, etcd_flags, lazy

_NOT_OF_THE_STORE = ("force", "etcd_compaction_interval")


@click.command(short_help="Fill an empty store from a file that `certwright backup` wrote.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Replace an existing store; its contents are lost.")
@backup_options.store_options
def command(*, file: Path, force: bool, store: backup_options.StoreFlags, etcd: etcd_flags.EtcdFlags) -> None:
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
    done = backup_options.outcome(lazy.app.restore(backup_options.options(store, etcd), file, force=force))
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
