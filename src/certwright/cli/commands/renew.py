"""`certwright renew`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli.access import Session, session
from certwright.cli.diagnosis import is_true
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.format import echo
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
    selector_option,
)
from certwright.cli.related import CERTIFICATES, CHALLENGES, ORDERS, add_condition
from certwright.cli.resource_args import Target, not_found
from certwright.kube.api import errors
from certwright.kube.api.meta import ObjectKey
from certwright.resources.names import CERTIFICATE_NAME, NOT_BEFORE
from certwright.resources.reasons import FINAL_STATES
from certwright.resources.retry import parse_moment, read_retry, rfc3339

Json = dict[str, Any]
# cmctl's reason and message, so that searches for them in conditions and logs also find ours.
_REASON = "ManuallyTriggered"
_MESSAGE = "Certificate re-issuance manually triggered"


@click.command(short_help="Renew certificates now.")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option(
    "--all", "everything", is_flag=True, help="All certificates of the namespace (with -A: of all)."
)
@selector_option
@all_namespaces_option
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    names: tuple[str, ...],
    everything: bool,
    selector: str,
    all_namespaces: bool,
) -> None:
    """Re-issue certificates now, whatever their remaining lifetime.

    Sets the condition Issuing on each, as `cmctl renew` does; the controllers do the rest. This also ends
    the backoff after a failure, and that of an order which waits for its CA, but not a wait until a time
    that the CA has named. The old certificate stays in its Secret until it is replaced.

    \b
    Examples:
      certwright renew web
      certwright renew --all -A
      certwright renew -l app=shop -n shop
    """
    if sum((bool(names), bool(selector), everything)) != 1:
        raise click.UsageError("name the certificates: NAME…, -l SELECTOR, or --all")
    if names and all_namespaces:
        raise click.UsageError("a name is only unique within its namespace: use -n NS instead of -A")
    async with session(server) as here:
        namespace = "" if all_namespaces else here.namespace
        chosen = await _choose(here, names, selector, namespace)
        results = [await _renew(here, *key) for key in chosen]
    if not all(results):
        raise AlreadyReported


async def _choose(
    here: Session, names: tuple[str, ...], selector: str, namespace: str
) -> list[tuple[str, str]]:
    if names:
        return [(namespace, name) for name in names]
    listing = await here.client.list(CERTIFICATES, namespace, labels=selector)
    if not listing.items:
        raise Failed(f"there is no such certificate{f' in namespace {namespace}' if namespace else ''}")
    return [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listing.items]


async def _renew(here: Session, namespace: str, name: str) -> bool:
    """Mark one certificate; returns whether that succeeded."""
    words = f"certificate {namespace}/{name}"
    try:
        certificate = await add_condition(here.client, CERTIFICATES, ObjectKey(namespace, name), _mark)
        # A running issuance may be in a backoff: the mark ends that too.
        waits = is_true(certificate, "Issuing")
        not_before = await _not_before(here, certificate) if waits else None
    except errors.NotFound as error:
        report_error(not_found(error, Target(CERTIFICATES, namespace, (name,))))
        return False
    except errors.ApiError as error:
        report_error(f"{words}: {error}")
        return False
    if not_before is not None:
        report_warning(
            f"{words} waits until {rfc3339(not_before)}, the time that its issuer has named; renew does not "
            "override that"
        )
    else:
        echo(f"{'Retrying' if waits else 'Renewing'} {words}")
    spec = certificate.get("spec") or {}
    if spec.get("isCA") and (spec.get("privateKey") or {}).get("rotationPolicy") != "Never":
        report_warning(
            f"{words} is a CA and gets a new key: clients that have installed it refuse what it signs from "
            "now on, until they install the new one; spec.privateKey.rotationPolicy: Never keeps the key"
        )
    return True


async def _not_before(here: Session, certificate: Json) -> datetime | None:
    """The time before which the issuer or its CA accepts nothing; None: it has named none."""
    meta, now = certificate["metadata"], datetime.now(UTC)
    annotations = meta.get("annotations") or {}
    record = read_retry(annotations)
    named = [record.not_before] if record is not None else []
    try:
        orders = (await here.client.list(ORDERS, meta["namespace"])).items
        challenges = (await here.client.list(CHALLENGES, meta["namespace"])).items
    except errors.ApiError:
        # Without ACME, or without the right to read them: the record is what there is.
        orders, challenges = [], []
    orders = [
        order
        for order in orders
        if (order["metadata"].get("annotations") or {}).get(CERTIFICATE_NAME) == meta["name"]
    ]
    owners = {order["metadata"]["uid"] for order in orders}
    challenges = [
        challenge
        for challenge in challenges
        if any(owner["uid"] in owners for owner in challenge["metadata"].get("ownerReferences") or ())
    ]
    for item in (*orders, *challenges):
        if (item.get("status") or {}).get("state", "") not in FINAL_STATES:
            marks = item["metadata"].get("annotations") or {}
            named.append(parse_moment(marks.get(NOT_BEFORE, "")))
    return max((moment for moment in named if moment is not None and moment > now), default=None)


def _mark(certificate: Json) -> Json:
    generation = certificate["metadata"].get("generation", 0)
    return {"type": "Issuing", "reason": _REASON, "message": _MESSAGE, "observedGeneration": generation}
