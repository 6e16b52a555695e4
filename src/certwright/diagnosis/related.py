"""Objects related to one certificate: its issuer, current request, Secret and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from certwright.diagnosis.certificates import (
    OUR_GROUP,
    SETS_GROUP,
    RelatedObjects,
    certificate_revision,
    issuer_ref,
    member_ref,
)
from certwright.kube.api import core, errors
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.cache import revision_of
from certwright.kube.client.listing import decode_item
from certwright.kube.client.rest import Client
from certwright.resources import names, plain_kinds
from certwright.resources.request_names import request_names

Json = dict[str, Any]
_ATTEMPTS = 5
_MOST_EVENTS = 1_000


def _as_json(kind: AnyKind) -> Kind[Json]:
    # Plain JSON rather than the structs of `resources`: fields of a newer server must be shown, not dropped.
    return replace(kind, type=dict)


CERTIFICATES = plain_kinds.CERTIFICATES
REQUESTS = plain_kinds.CERTIFICATE_REQUESTS
ISSUERS = plain_kinds.ISSUERS
CLUSTER_ISSUERS = plain_kinds.CLUSTER_ISSUERS
ISSUER_SETS = plain_kinds.ISSUER_SETS
CLUSTER_ISSUER_SETS = plain_kinds.CLUSTER_ISSUER_SETS
SECRETS = _as_json(core.SECRETS)
EVENTS = _as_json(core.EVENTS)
NAMESPACES = _as_json(core.NAMESPACES)
CONFIG_MAPS = _as_json(core.CONFIG_MAPS)
ORDERS = plain_kinds.ORDERS
CHALLENGES = plain_kinds.CHALLENGES
DELIVERIES = plain_kinds.DELIVERIES


OrderNames = Callable[[Json, Json], tuple[str, ...]]
"""The names of a CertificateRequest's Order, with the ACME issuer of the request, of which at most one
exists."""


async def read_related(
    client: Client, certificate: Json, *, most: int = 0, order_names: OrderNames | None = None
) -> RelatedObjects:
    """Read the objects related to `certificate`. Objects that the user may not read are `hidden`: the issuer,
    the Secret (which the role `view` cannot read), the request, its order.

    `most`: about how many objects of a list are read; 0: all. With `order_names` the order is read by its
    name. Raises `ApiError`.
    """
    namespace = certificate["metadata"]["namespace"]
    secret_name = (certificate.get("spec") or {}).get("secretName", "")
    ref = issuer_ref(certificate)
    # In sequence, on one connection: another connection would take as many round trips, and a handshake.
    issuer = request = secret = None
    hidden = []
    try:
        issuer = await _issuer(client, ref, namespace)
    except errors.Forbidden:
        hidden.append("issuer")
    try:
        request = await _request(client, certificate, most)
    except errors.Forbidden:
        hidden.append("request")
    try:
        secret = await get_or_none(client, SECRETS, secret_name, namespace)
    except errors.Forbidden:
        hidden.append("secret")
    is_missing = issuer is None and "issuer" not in hidden
    namesake = await _namesake(client, ref, namespace) if is_missing else None
    context = RelatedObjects(certificate, issuer, request, secret, namesake=namesake, hidden=tuple(hidden))
    may_order = ref["group"] == SETS_GROUP or "acme" in ((issuer or {}).get("spec") or {})
    if request is None or not may_order:
        return context
    try:
        order = await _order(client, request, issuer, most, order_names)
        status = (order or {}).get("status") or {}
        open_ones = [one for one in status.get("authorizations") or () if one.get("initialState") != "valid"]
        if order is None or not open_ones or status.get("state") == "valid":
            # There are no challenges yet, or they have been deleted.
            return replace(context, order=order)
        challenges = await _owned(client, CHALLENGES, order, most, enough=len(open_ones))
    except errors.Forbidden:
        return replace(context, hidden=(*hidden, "order"))
    return replace(context, order=order, challenges=tuple(challenges))


async def _owned(client: Client, kind: Kind[Json], owner: Json, most: int, *, enough: int = 0) -> list[Json]:
    """The objects of that kind that `owner` owns: in the list of its namespace, up to the page with the last
    of `enough` objects (0: that number is not known), or with the `most`th object of the list (0: all)."""
    # No selector chooses by owner, and names of challenges depend on the account's key.
    uid, found = str(owner["metadata"].get("uid", "")).encode(), list[Json]()
    async with aclosing(client.list_pages(kind, owner["metadata"]["namespace"], most=most)) as pages:
        async for page in pages:
            objects = [decode_item(kind, raw) for raw in page.items if uid in bytes(raw)]
            found += [obj for obj in objects if _belongs(obj, owner)]
            if enough and len(found) >= enough:
                break
    return found


async def _request(client: Client, certificate: Json, most: int) -> Json | None:
    """The certificate's request of the highest revision, by the names that controllers give their requests,
    so that others' requests need not be read; without a request of these names, from a list."""
    named = await requests_by_name(client, certificate, 2)
    if named:
        return named[0]
    return current_request(certificate, await _owned(client, REQUESTS, certificate, most))


async def requests_by_name(client: Client, certificate: Json, most: int) -> list[Json]:
    """The certificate's requests with the names that controllers give them, newest first, up to `most`
    revisions back. Raises `ApiError`.

    Source: cert-manager's feature gate StableCertificateRequestName.
    """
    meta, status = certificate["metadata"], certificate.get("status") or {}
    following = int(status.get("revision") or 0) + 1
    found = []
    for revision in range(following, max(following - most, 0), -1):
        for name in request_names(meta["name"], meta.get("uid", ""), revision):
            request = await get_or_none(client, REQUESTS, name, meta["namespace"])
            if request is not None and _belongs(request, certificate):
                found.append(request)
            if request is None or found[-1:] == [request]:
                # Only where another owner has the first name, controllers take the second.
                break
    return found


async def _order(
    client: Client, request: Json, issuer: Json | None, most: int, order_names: OrderNames | None
) -> Json | None:
    """The request's order that is not superseded."""
    namespace = request["metadata"]["namespace"]
    if order_names is not None:
        member = member_ref(request)
        signer = await _issuer(client, member, namespace) if member else issuer
        for name in order_names(request, signer or {}):
            order = await get_or_none(client, ORDERS, name, namespace)
            if order is not None and _belongs(order, request) and not _is_superseded(order):
                return order
    orders = await _owned(client, ORDERS, request, most)
    return next((order for order in orders if not _is_superseded(order)), None)


def of_the_other_kind(ref: Mapping[str, str]) -> dict[str, str]:
    """The reference that the user may have meant: a ClusterIssuer for an Issuer, and the other way."""
    return {**ref, "kind": "Issuer" if ref["kind"] == "ClusterIssuer" else "ClusterIssuer"}


async def _namesake(client: Client, ref: Mapping[str, str], namespace: str) -> Json | None:
    try:
        return await _issuer(client, of_the_other_kind(ref), namespace)
    except errors.Forbidden:
        # A user may read Issuers but not ClusterIssuers; it is only a hint.
        return None


async def _issuer(client: Client, ref: Mapping[str, str], namespace: str) -> Json | None:
    if ref["group"] not in (OUR_GROUP, SETS_GROUP):
        return None
    in_sets = ref["group"] == SETS_GROUP
    cluster, own = (CLUSTER_ISSUER_SETS, ISSUER_SETS) if in_sets else (CLUSTER_ISSUERS, ISSUERS)
    try:
        return await get_or_none(
            client, cluster if ref["kind"] == cluster.kind else own, ref["name"], namespace
        )
    except errors.Forbidden:
        if in_sets:
            # The request itself reports its wait.
            return None
        raise


async def get_or_none(client: Client, kind: Kind[Json], name: str, namespace: str = "") -> Json | None:
    """The object, or None if there is none of that name."""
    if not name:
        return None
    try:
        return await client.get(kind, name, namespace)
    except errors.NotFound:
        return None


async def add_condition(
    client: Client,
    kind: Kind[Json],
    key: ObjectKey,
    make: Callable[[Json], Json | None],
    listed: Json | None = None,
) -> Json:
    """Set the condition that `make` returns for the object, in place of a condition of its type; `make` may
    return None for no change. Returns the object as it was. `listed`: an earlier state of the object. Raises
    `ApiError`."""
    for attempt in range(_ATTEMPTS):
        obj = listed if listed and not attempt else await client.get(kind, key.name, key.namespace)
        condition = make(obj)
        if condition is None:
            return obj
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        existing = (obj.get("status") or {}).get("conditions") or []
        others = [item for item in existing if item.get("type") != condition["type"]]
        patch = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": [*others, {**condition, "status": "True", "lastTransitionTime": now}]},
        }
        try:
            await client.patch(kind, key.name, key.namespace, patch, subresource="status")
        except errors.Conflict:
            # A controller wrote at the same moment.
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return obj
    raise AssertionError("the last attempt returns or raises")


def current_request(certificate: Json, requests: list[Json]) -> Json | None:
    """The request of the certificate with the highest revision."""
    own = [request for request in requests if _belongs(request, certificate)]
    return max(own, key=certificate_revision, default=None)


def _is_superseded(order: Json) -> bool:
    return (order["metadata"].get("annotations") or {}).get(names.ACME_SUPERSEDED) == "true"


def _belongs(obj: Json, owner_of_it: Json) -> bool:
    uid = owner_of_it["metadata"].get("uid")
    owners = obj["metadata"].get("ownerReferences") or []
    return bool(uid) and any(owner.get("uid") == uid for owner in owners)


async def events_of(client: Client, obj: Json) -> list[Json]:
    """The events about the object, oldest first; of very many, those that a list has first."""
    metadata = obj["metadata"]
    fields = {
        "involvedObject.name": metadata["name"],
        "involvedObject.namespace": metadata.get("namespace", ""),
        "involvedObject.kind": obj.get("kind", ""),
        "involvedObject.uid": metadata.get("uid", ""),
    }
    selector = ",".join(f"{field}={value}" for field, value in fields.items() if value)
    pages = client.list_pages(EVENTS, metadata.get("namespace", ""), fields=selector, most=_MOST_EVENTS)
    found = [decode_item(EVENTS, raw) async for page in pages for raw in page.items]
    return sorted(found, key=last_seen)


def last_seen(event: Json) -> tuple[str, int]:
    """The sort key of events by last occurrence: the API's timestamp, then the order of writing."""
    created = event["metadata"].get("creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or created or ""), revision_of(event)
