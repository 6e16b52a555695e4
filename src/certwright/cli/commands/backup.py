"""`certwright backup`."""

from __future__ import annotations

from pathlib import Path

import click

from certwright.cli import backup_options, etcd_flags, lazy
from certwright.cli.errors import AlreadyReported, Failed, report_warning


@click.command(short_help="Save all objects of a server's store in a file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@backup_options.store_options
def command(*, file: Path, force: bool, store: backup_options.StoreFlags, etcd: etcd_flags.EtcdFlags) -> None:
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
    done = backup_options.outcome(lazy.app.back_up(backup_options.options(store, etcd), file))
    click.echo(f"{done.objects} objects at revision {done.revision} saved in {file}")
    if done.wrapped_by is None:
        click.echo("Its Secrets are NOT encrypted: keep it as safe as they are.")
    else:
        click.echo(f"Its Secrets need the key of fingerprint {done.wrapped_by} ({done.source}); keep a copy.")
    for sentence in done.left_out:
        report_warning(f"not saved: {sentence}")
    if done.left_out:
        raise AlreadyReported
