"""`certwright renew`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.bulk import ONE_AT_A_TIME, Tally, each_in_order
from certwright.cli.commands.wait import Goal, Item, Waiter
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.format import echo
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
    timeout_option,
)
from certwright.cli.resource_args import Target, not_found
from certwright.diagnosis import deliveries
from certwright.diagnosis.actions import renew
from certwright.diagnosis.certificates import Diagnosis, is_true
from certwright.diagnosis.related import CERTIFICATES, CHALLENGES, DELIVERIES, ORDERS
from certwright.diagnosis.words import count, parse_time
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.resources.names import CERTIFICATE_NAME
from certwright.resources.reasons import EXPORTED

Json = dict[str, Any]
_SHOWN = 5


@click.command(short_help="Renew certificates now.")
@click.argument("names", nargs=-1, metavar="[NAME…]", shell_complete=completion.names_of("certificates"))
@click.option(
    "--all", "everything", is_flag=True, help="All certificates of the namespace (with -A: of all)."
)
@selector_option
@click.option("--cas", is_flag=True, help="With --all or -l: CA certificates, too.")
@all_namespaces_option
@click.option("--wait", is_flag=True, help="Wait until the new certificates are stored and delivered.")
@timeout_option(default="2m", text="How long --wait waits")
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    names: tuple[str, ...],
    everything: bool,
    selector: str,
    cas: bool,
    all_namespaces: bool,
    wait: bool,
    timeout_s: float,
) -> None:
    """Re-issue certificates now, whatever their remaining lifetime.

    Sets the condition Issuing on each, as `cmctl renew` does; the controllers do the rest. This also ends
    the backoff after a failure, and that of an order which waits for its CA, but not a wait until a time
    that the CA has named. The old certificate stays in its Secret until it is replaced.

    --all and -l leave out the certificates of CAs (spec.isCA), because clients have installed them: name
    them, or give --cas. More than twenty are sent many at a time, and a summary is printed at the end.

    With --wait the command ends when the new certificates are stored, `--export` and their Deliveries have
    written them and, where `servedAt` names addresses, see them presented there. It shows its progress, and
    ends, as `certwright wait` does: with status 1 on a timeout, or when the next attempt is after it.

    \b
    Examples:
      certwright renew web
      certwright renew web --wait
      certwright renew --all -A
      certwright renew -l app=shop -n shop
      certwright renew --all -A --cas
    """
    if sum((bool(names), bool(selector), everything)) != 1:
        raise click.UsageError("name the certificates: NAME…, -l SELECTOR, or --all")
    if names and all_namespaces:
        raise click.UsageError("a name is only unique within its namespace: use -n NS instead of -A")
    async with session(server) as here:
        namespace = "" if all_namespaces else here.namespace
        chosen = await _choose(here, names, selector, namespace, cas=cas)
        # As they are before the renewal.
        delivered = await deliveries.in_namespace(here.client, namespace) if wait else []
        renewer = _Renewer(here)
        succeeded = await renewer.renew(chosen)
        if wait:
            succeeded &= await _wait(here, renewer.marked, delivered, timeout_s)
    if not succeeded:
        raise AlreadyReported


_Chosen = tuple[str, str, Json | None]
"""Namespace and name of a Certificate, and its state where it has been listed."""


async def _choose(
    here: Session, names: tuple[str, ...], selector: str, namespace: str, *, cas: bool
) -> list[_Chosen]:
    if names:
        return [(namespace, name, None) for name in names]
    listing = await here.client.list(CERTIFICATES, namespace, labels=selector)
    if not listing.items:
        raise Failed(f"there is no such certificate{f' in namespace {namespace}' if namespace else ''}")
    chosen: list[_Chosen] = []
    left_out: list[str] = []
    for item in listing.items:
        place, name = item["metadata"]["namespace"], item["metadata"]["name"]
        if (item.get("spec") or {}).get("isCA") and not cas:
            left_out.append(f"{place}/{name}")
        else:
            chosen.append((place, name, item))
    if left_out:
        more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        what = f"{count(len(left_out), 'CA certificate')} left out: {', '.join(left_out[:_SHOWN])}{more}"
        if not chosen:
            raise Failed(f"nothing is renewed: {what}; name them, or give --cas")
        report_warning(f"{what}; name them, or give --cas")
    return chosen


class _Renewer:
    """Renews Certificates, many of them at the same time."""

    def __init__(self, here: Session) -> None:
        self._here = here
        self.marked: list[Json] = []
        """The Certificates, as they were before they were marked."""
        self._acme: dict[str, asyncio.Task[tuple[list[Json], list[Json]]]] = {}

    async def renew(self, chosen: Sequence[_Chosen]) -> bool:
        """Mark the Certificates, and report each in their order; returns whether that succeeded for all."""
        is_few, tally, succeeded = len(chosen) <= ONE_AT_A_TIME, Tally(len(chosen)), True
        async with aclosing(each_in_order(chosen, self._renew, alone=lambda _item: is_few)) as results:
            async for _, outcome in results:
                for report, sentence in outcome.sentences:
                    report(sentence)
                tally.add(outcome.result)
                succeeded &= outcome.result != "failed"
        tally.summarize()
        return succeeded

    async def _renew(self, chosen: _Chosen) -> _Outcome:
        """Mark one Certificate for renewal."""
        namespace, name, listed = chosen
        words = f"certificate {namespace}/{name}"
        try:
            key = ObjectKey(namespace, name)
            done = await renew(self._here.client, key, self._waits, now=datetime.now(UTC), listed=listed)
        except errors.NotFound as error:
            target = Target(CERTIFICATES, namespace, (name,))
            missing = await not_found(self._here.client, error, target)
            return _Outcome("failed", [(report_error, missing)])
        except errors.ApiError as error:
            return _Outcome("failed", [(report_error, f"{words}: {error}")])
        self.marked.append(done.before)
        report = report_warning if done.result == "waiting" else echo
        warnings = [(report_warning, done.warning)] if done.warning else []
        return _Outcome(done.result, [(report, done.sentence), *warnings])

    async def _waits(self, certificate: Json) -> list[Json]:
        """The Orders of the Certificate, and their Challenges."""
        meta = certificate["metadata"]
        # Once for all Certificates of a namespace.
        if (listing := self._acme.get(meta["namespace"])) is None:
            listing = asyncio.create_task(self._orders(meta["namespace"]))
            self._acme[meta["namespace"]] = listing
        orders, challenges = await listing
        orders = [
            order
            for order in orders
            if (order["metadata"].get("annotations") or {}).get(CERTIFICATE_NAME) == meta["name"]
        ]
        owners = {order["metadata"]["uid"] for order in orders}
        return orders + [
            challenge
            for challenge in challenges
            if any(owner["uid"] in owners for owner in challenge["metadata"].get("ownerReferences") or ())
        ]

    async def _orders(self, namespace: str) -> tuple[list[Json], list[Json]]:
        """The Orders and Challenges; none without ACME, or without the right to read them."""
        client = self._here.client
        try:
            orders = (await client.list(ORDERS, namespace)).items
            return orders, (await client.list(CHALLENGES, namespace)).items
        except errors.ApiError:
            return [], []


async def _wait(
    here: Session, certificates: Sequence[Json], delivered: Sequence[Json], timeout_s: float
) -> bool:
    """Wait until the Certificates are renewed, then for their Deliveries. Both are given as they were before
    the renewal. Returns whether all succeeded."""
    begun = asyncio.get_running_loop().time()
    items = [_item(_renewed(certificate), CERTIFICATES, certificate) for certificate in certificates]
    issuing = Waiter(here, timeout_s, items, begun=begun)
    await issuing.wait()
    targets: list[Item] = []
    for item in items:
        if item.state is not None and item.goal.test(item.state):
            own = deliveries.among(delivered, item.state)
            targets += [_item(_delivered(delivery, item.state), DELIVERIES, delivery) for delivery in own]
    delivering = Waiter(here, timeout_s, targets, begun=begun)
    await delivering.wait()
    return not (issuing.failed or delivering.failed)


def _item(goal: Goal, kind: Kind[Json], obj: Json) -> Item:
    return Item(goal, kind, obj["metadata"]["namespace"], obj["metadata"]["name"])


def _renewed(before: Json) -> Goal:
    """The goal that the Certificate has a later revision than `before`, is Ready, and has its files where
    `--export` has written them before."""

    def test(certificate: Json | None) -> bool:
        is_idle = is_true(certificate, "Ready") and not is_true(certificate, "Issuing")
        # An issuance removes the condition, until the files are replaced.
        has_files = is_true(certificate, EXPORTED) or not is_true(before, EXPORTED)
        return is_idle and _revision(certificate) > _revision(before) and has_files

    return Goal("renewed", test, "Ready", "true")


def _revision(certificate: Json | None) -> int:
    return int(((certificate or {}).get("status") or {}).get("revision") or 0)


def _delivered(before: Json, certificate: Json) -> Goal:
    """The goal that a Delivery, formerly `before`, has delivered the renewed Certificate, and that its
    `servedAt` presents it."""
    old = _current(before).get("fingerprint")
    expires = parse_time(certificate["status"].get("notAfter"))

    def is_new(delivery: Json | None) -> bool:
        current = _current(delivery)
        # Not one that was still being delivered when the renewal began.
        return (
            current.get("fingerprint") not in (None, old) and parse_time(current.get("notAfter")) == expires
        )

    def test(delivery: Json | None) -> bool:
        is_served = is_true(delivery, "Deployed") or not ((delivery or {}).get("spec") or {}).get("servedAt")
        return is_new(delivery) and is_true(delivery, "Delivered") and is_served

    def explain(delivery: Json, now: datetime) -> Diagnosis:
        if is_true(delivery, "Delivered") and not is_new(delivery):
            return Diagnosis("the files contain the certificate before the renewal")
        return deliveries.why_not(delivery, "delivered", now)

    return Goal("delivered", test, "Delivered", "true", explain)


def _current(delivery: Json | None) -> Json:
    current: Json = ((delivery or {}).get("status") or {}).get("current") or {}
    return current


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A word for the summary, and the sentences with the function that prints each."""

    result: str
    sentences: list[tuple[Callable[[str], None], str]]
