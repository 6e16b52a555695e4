"""`certwright approve` and `deny`: set one condition on undecided requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from certwright.cli.access import Session, session
from certwright.cli.diagnosis import is_true
from certwright.cli.errors import AlreadyReported, report_error
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.related import REQUESTS
from certwright.kube.api import errors

Json = dict[str, Any]
_ATTEMPTS = 5
_TYPES = ("Approved", "Denied")
# cmctl's reason, so that searches for it in conditions also find ours.
_REASON = "KubectlCertManager"


class Decision(msgspec.Struct, frozen=True):
    """A decision. `type` is the condition's."""

    type: str
    reason: str
    message: str


def decision_options(verb: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--reason` and `--message`."""
    options = (
        click.option(
            "--reason",
            metavar="WORD",
            default=_REASON,
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
    words = f"certificaterequest {here.namespace}/{name}"
    done = decision.type.lower()
    try:
        for attempt in range(_ATTEMPTS):
            request = await here.client.get(REQUESTS, name, here.namespace)
            if (before := next((kind for kind in _TYPES if is_true(request, kind)), None)) is not None:
                return _report_decision(words, before, decision)
            patch = _mark(request, decision, datetime.now(UTC))
            try:
                await here.client.patch(REQUESTS, name, here.namespace, patch, subresource="status")
            except errors.Conflict:
                # A controller wrote at the same moment.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            echo(f"{words} {done}")
            return True
    except errors.ApiError as error:
        report_error(f"{words}: {error}")
    return False


def _report_decision(words: str, before: str, decision: Decision) -> bool:
    """Report a decided request: decisions are final, and repeating one is not an error."""
    state = f"{words} is {before.lower()} already"
    if before == decision.type:
        echo(state)
        return True
    report_error(f"{state}, which is final; only a new request can be {decision.type.lower()}")
    return False


def _mark(request: Json, decision: Decision, now: datetime) -> Json:
    """The merge patch that adds the condition; valid only for the resourceVersion that was read."""
    condition = {
        "type": decision.type,
        "status": "True",
        "reason": decision.reason,
        "message": decision.message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    existing = (request.get("status") or {}).get("conditions") or []
    return {
        "metadata": {"resourceVersion": request["metadata"]["resourceVersion"]},
        "status": {"conditions": [*existing, condition]},
    }


@click.command(short_help="Allow certificate requests to be signed.")
@click.argument("names", nargs=-1, required=True, metavar="REQUEST…")
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
@click.argument("names", nargs=-1, required=True, metavar="REQUEST…")
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
