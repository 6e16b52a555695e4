"""`certwright approve` and `deny`: set one condition on undecided requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.diagnosis import actions
from certwright.diagnosis.actions import Decision
from certwright.kube.api import errors
from certwright.kube.api.meta import ObjectKey


def decision_options(verb: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--reason` and `--message`."""
    options = (
        click.option(
            "--reason",
            metavar="WORD",
            default=actions.DECISION_REASON,
            show_default=True,
            help="The reason in the condition: one word, for programs.",
        ),
        click.option(
            "--message",
            metavar="TEXT",
            default=f'manually {verb} by "certwright"',
            show_default=True,
            help="The message in the condition: a sentence, for people.",
        ),
    )
    return lambda command: options[0](options[1](command))


async def decide(server: ServerOptions, names: tuple[str, ...], decision: Decision) -> None:
    """Decide on each request and report it. Raises `AlreadyReported` if one of them failed."""
    async with session(server) as here:
        results = [await _decide(here, name, decision) for name in names]
    if not all(results):
        raise AlreadyReported


async def _decide(here: Session, name: str, decision: Decision) -> bool:
    words, done = f"certificaterequest {here.namespace}/{name}", decision.type.lower()

    try:
        before = await actions.decide(here.client, ObjectKey(here.namespace, name), decision)
    except errors.ApiError as error:
        report_error(f"{words}: {error}")
        return False
    if before not in ("", decision.type):
        report_error(f"{words} is {before.lower()} already, which is final; only a new request can be {done}")
        return False
    # Decisions are final, and repeating one is no error.
    echo(f"{words} {done}" if not before else f"{words} is {done} already")
    return True


@click.command(short_help="Allow certificate requests to be signed.")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="REQUEST…",
    shell_complete=completion.names_of("certificaterequests"),
)
@decision_options("approved")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, names: tuple[str, ...], reason: str, message: str) -> None:
    """Allow certificate requests to be signed.

    Needed if requests are not approved automatically (`--controllers=*,-certificaterequests-approver`). You
    need the right to `approve` for the issuer. A decision is final.

    \b
    Examples:
      certwright approve web-1
      certwright approve web-1 shop-3 -n shop --reason Reviewed --message "seen by Jane"
    """
    await decide(server, names, Decision("Approved", reason, message))


@click.command(short_help="Forbid certificate requests to be signed.")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="REQUEST…",
    shell_complete=completion.names_of("certificaterequests"),
)
@decision_options("denied")
@namespaced_server_options
@asynchronous
async def deny(*, server: ServerOptions, names: tuple[str, ...], reason: str, message: str) -> None:
    """Forbid certificate requests to be signed.

    The issuance fails, with your message in the Certificate's condition, and is retried with a new request
    after an hour, then after two, and so on. You need the right to `approve` for the issuer. A
    decision is final.

    \b
    Examples:
      certwright deny web-1
      certwright deny web-1 -n shop --reason NotInThisHouse --message "ask for *.shop.example.com"
    """
    await decide(server, names, Decision("Denied", reason, message))
