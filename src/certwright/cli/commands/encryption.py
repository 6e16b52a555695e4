"""`certwright encryption`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from certwright.cli.access import Session, session
from certwright.cli.errors import Failed
from certwright.cli.format import print_content
from certwright.cli.options import Folder, ServerOptions, asynchronous, json_option, server_options
from certwright.kube.api.errors import ApiError, NotFound

_PATH = "/certwright/encryption"
_POLL_INTERVAL_S = 0.5


@click.group(cls=Folder, short_help="Show how Secrets are encrypted in the store; change the keys.")
def command() -> None:
    """Show how Secrets are encrypted in the store, and change the keys.

    A server encrypts Secrets before it writes them to disk (AES-256-GCM), with a data key in the store. The
    data key is encrypted with the key in DIR/encryption.key, $CERTWRIGHT_ENCRYPTION_KEY or the file of
    --encryption-key-file of `certwright serve`.

    \b
    Examples:
      certwright encryption status
      certwright encryption rotate
    """


@command.command(short_help="Whether Secrets are encrypted, and with which keys.")
@json_option()
@server_options
@asynchronous
async def status(*, server: ServerOptions, output: str | None) -> None:
    """Show whether Secrets are encrypted, with which keys, and the progress of a rotation.

    \b
    Examples:
      certwright encryption status
      certwright encryption status -o json
    """
    async with session(server) as here:
        state = await _request(here, "GET", _PATH)
    if output is not None:
        print_content(state, output)
        return
    for line in _lines(state):
        click.echo(line)


@command.command(short_help="Re-encrypt all Secrets with a new key.")
@click.option("--key-file", "wrapping", is_flag=True, help="Replace the key in the key file instead.")
@server_options
@asynchronous
async def rotate(*, server: ServerOptions, wrapping: bool) -> None:
    """Create a data key and re-encrypt all Secrets with it, while the server continues to serve.

    You can interrupt the command or the server at any time: the server finishes the work. The old key is
    removed once no Secret needs it. Older backups contain the data key that they were made with, and need
    only the key file.

    With --key-file the server replaces the key in its key file, and encrypts the data key with the new one;
    Secrets are not touched. Older backups need the old key: keep it.

    \b
    Examples:
      certwright encryption rotate
      certwright encryption rotate --key-file
    """
    async with session(server) as here:
        if wrapping:
            state = await _request(here, "POST", f"{_PATH}/rewrap")
            click.echo(f"the key in {state['source']} is new, its fingerprint {state['wrapped_by']}")
            return
        async for state in _progress(here, f"{_PATH}/rotate"):
            if state["total"]:
                click.echo(f"{state['done']} of {state['total']} Secrets are re-encrypted")
    click.echo("all Secrets are encrypted with a new data key; the old one is gone")


@command.command(short_help="Decrypt all Secrets in the store of servers with --encrypt-secrets=false.")
@server_options
@asynchronous
async def decrypt(*, server: ServerOptions) -> None:
    """Decrypt all Secrets in a store that several servers share, and encrypt none from then on.

    Start all servers of the store with --encrypt-secrets=false first. The flag alone does not decrypt an
    etcd, because other servers rely on its encryption.

    \b
    Example:
      certwright encryption decrypt
    """
    async with session(server) as here:
        async for _ in _progress(here, f"{_PATH}/decrypt"):
            pass
    click.echo("the Secrets are not encrypted any more; the data key is gone")


async def _progress(here: Session, path: str) -> AsyncIterator[dict[str, Any]]:
    """Start the work, and yield its state until it is done. Raises `Failed` for Secrets that do not open."""
    state = await _request(here, "POST", path)
    while not state["settled"]:
        if state["unreadable"]:
            raise Failed(f"{state['unreadable']} Secrets do not open; the server's log names them")
        yield state
        await asyncio.sleep(_POLL_INTERVAL_S)
        state = await _request(here, "GET", _PATH)


async def _request(here: Session, method: str, path: str) -> dict[str, Any]:
    try:
        response = await here.client.raw(method, path)
    except NotFound as error:
        raise Failed("this server is not certwright's, or an older one") from error
    except ApiError as error:
        raise Failed(str(error)) from error
    content: dict[str, Any] = msgspec.json.decode(response.body)
    return content


def _lines(state: dict[str, Any]) -> list[str]:
    if state["wanted"]:
        since = datetime.fromtimestamp(state["since"], UTC).strftime("%Y-%m-%d %H:%M UTC")
        lines = [
            "Secrets are encrypted with AES-256-GCM.",
            f"Data key: since {since}",
            f"Wrapped by: the key of fingerprint {state['wrapped_by']} ({state['source']})",
        ]
    else:
        lines = ["Secrets are NOT encrypted."]
    if not state["settled"]:
        lines.append(f"Being rewritten: {state['done']} of {state['total']}")
    if state["unreadable"]:
        lines.append(f"Unreadable: {state['unreadable']}; the server's log names them")
    if state.get("warning"):
        lines.append(f"Warning: {state['warning']}")
    return lines
