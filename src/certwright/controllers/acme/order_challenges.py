"""The Challenges of an Order: their solvers and names, their creation and deletion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from certwright.controllers.acme import order_requests
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.order_progress import ChallengeInputs, Ensured
from certwright.controllers.cache.caches import Caches
from certwright.controllers.shims import annotations as known
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import (
    CONTROLLER_REFERENCE,
    ObjectKey,
    ObjectMeta,
    changed_by_admission,
    controller_of,
    removed_metadata,
)
from certwright.kube.client.rest import Client
from certwright.resources import names
from certwright.resources.acme import ACMEAuthorization, Challenge, ChallengeSpec, Order, challenge_name
from certwright.resources.ingress import EXPERIMENTAL_LISTENER_SETS, GATEWAY_GROUP
from certwright.resources.solver import (
    CHALLENGE_TYPES,
    ParentRef,
    Selector,
    Solver,
)
from certwright.resources.table import CHALLENGES, ORDERS


class OrderChallenges:
    """Creates and deletes the Challenges of Orders."""

    def __init__(self, caches: Caches, client: Client) -> None:
        self._caches = caches
        self._challenges = caches.challenges
        self._client = client

    async def ensure(
        self, order: Order, issuer: ResolvedIssuer, ensured: Ensured | None
    ) -> tuple[tuple[Challenge, ...], Ensured]:
        """Create the missing Challenges of the Order, and delete the Challenges of removed solvers. Returns
        all needed Challenges. `ensured`: the result of the last call for this Order.

        Raises `NoSolver`, and what writes to the API raise.
        """
        current = {
            challenge.metadata.name: challenge for challenge in self._caches.challenges_of(order.metadata)
        }
        inputs = ChallengeInputs(
            order.metadata.resource_version, issuer.view.resource_version, issuer.client.key.thumbprint
        )
        if ensured == (inputs, frozenset(current)):
            # An Order of a hundred names is enqueued for each that is proven.
            return tuple(current.values()), ensured
        shown_for = partial(order_requests.shown_for, issuer.client.key)
        needed = []
        for desired in needed_challenges(order, issuer.spec.solvers, shown_for):
            same = claim_same(desired, current, order.metadata.name)
            needed.append(same if same is not None else await self._create(desired))
        for leftover in current.values():
            # A failed one is kept to be read.
            if not leftover.status.is_final and leftover.metadata.deletion_timestamp is None:
                await self._delete(leftover)
        return tuple(needed), Ensured(inputs, frozenset(challenge.metadata.name for challenge in needed))

    async def delete(self, order: Order) -> None:
        """Delete all Challenges of the Order. Raises what writes to the API raise."""
        for challenge in list(self._caches.challenges_of(order.metadata)):
            if challenge.metadata.deletion_timestamp is None:
                await self._delete(challenge)

    async def _create(self, challenge: Challenge) -> Challenge:
        meta = challenge.metadata
        try:
            made = await self._client.create(CHALLENGES, challenge)
        except AlreadyExists:
            made = await self._client.get(CHALLENGES, meta.name, meta.namespace)
        else:
            if CONTROLLER_REFERENCE in removed_metadata(meta, made.metadata):
                await self._delete(made)
                raise ChallengeChanged(
                    changed_by_admission(f'Challenge "{meta.name}"', (CONTROLLER_REFERENCE,))
                )
        self._challenges.put(made)
        return made

    async def _delete(self, challenge: Challenge) -> None:
        meta = challenge.metadata
        try:
            await self._client.delete(CHALLENGES, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return


TYPES: Final[Mapping[str, str]] = {kind.lower(): kind for kind in CHALLENGE_TYPES}
"""The types of challenge that solvers answer: the server's words, and those of `spec.type`."""

ShownFor = Callable[[str, str], str]
"""What is shown for a type (the server's word) and a token."""


class NoSolver(Exception):
    """No solver of the issuer fits a name; the text is one sentence with the fix."""


class ChallengeChanged(NoSolver):
    """An admission webhook has made a new Challenge useless, and the Challenge was deleted."""


def needed_challenges(order: Order, solvers: Sequence[Solver], shown_for: ShownFor) -> list[Challenge]:
    """The Challenges to create, for each name that the server has not validated yet. The names of the
    Challenges are deterministic. Raises `NoSolver`."""
    meta, needed = order.metadata, []
    for authorization in order.status.authorizations:
        if authorization.initial_state == "valid":
            continue
        name = full_name(authorization)
        offered = {TYPES[item.type]: item for item in authorization.challenges if item.type in TYPES}
        solver = choose(solvers, name=name, labels=meta.labels, offered=offered)
        if solver is None:
            listed = ", ".join(item.type for item in authorization.challenges) or "no challenge at all"
            raise NoSolver(
                f"no solver of the issuer fits {name}, for which the server offers {listed}; add one to "
                "spec.acme.solvers, or widen its selector"
            )
        chosen = offered[solver.challenge_type]
        solver = overridden(solver, meta.annotations, meta.namespace)
        spec = ChallengeSpec(
            url=chosen.url,
            authorization_url=authorization.url,
            dns_name=authorization.identifier,
            wildcard=bool(authorization.wildcard),
            type=solver.challenge_type,
            token=chosen.token,
            key=shown_for(chosen.type, chosen.token),
            solver=solver,
            issuer_ref=order.spec.issuer_ref,
        )
        # The name of such a record depends on the account, which a clean-up needs after the issuer is gone.
        account = meta.annotations.get(names.ACME_ACCOUNT) if spec.type == "DNS-ACCOUNT-01" else None
        needed.append(
            Challenge(
                metadata=ObjectMeta(
                    name=challenge_name(meta.name, spec),
                    namespace=meta.namespace,
                    annotations={names.ACME_ACCOUNT: account} if account else {},
                    owner_references=(controller_reference(ORDERS, meta),),
                    finalizers=(names.ACME_FINALIZER,) if has_outside_state(solver) else (),
                ),
                spec=spec,
            )
        )
    return needed


def claim_same(desired: Challenge, current: dict[str, Challenge], order: str) -> Challenge | None:
    """Remove the Challenge that answers for `desired` from `current` (by name), and return it; None without
    one. A Challenge that cert-manager has made has another name, but is kept if it answers the same
    challenge."""
    if (existing := current.pop(desired.metadata.name, None)) is not None:
        return existing
    for name, challenge in current.items():
        if _proves(challenge.spec) == _proves(desired.spec) and name != challenge_name(order, challenge.spec):
            return current.pop(name)
    return None


def _proves(spec: ChallengeSpec) -> tuple[str, ...]:
    return (spec.authorization_url, spec.url, spec.type, spec.token)


def has_outside_state(solver: Solver) -> bool:
    """Whether what the solver presents outlives this process, and must be cleaned up."""
    if solver.http01 is not None:
        ingress = solver.http01.ingress
        # An Ingress or HTTPRoute of its own is owned by the Challenge, and is deleted with it.
        return solver.http01.webroot is not None or (ingress is not None and bool(ingress.name))
    return solver.tls_alpn01 is None and solver.dns_persist01 is None


def full_name(authorization: ACMEAuthorization) -> str:
    """The ordered name, with its `*.`."""
    return f"*.{authorization.identifier}" if authorization.wildcard else authorization.identifier


def choose(
    solvers: Sequence[Solver],
    *,
    name: str,
    labels: Mapping[str, str],
    offered: Collection[str],
) -> Solver | None:
    """The solver for a name (with its `*.`); None without a match.

    Its type of challenge must be among the `offered` types (`HTTP-01`), and its whole selector must match. Of
    several solvers the most specific wins: the name itself before a zone, a longer zone before a shorter one,
    more labels before fewer, an earlier solver in the list before a later one. Source: cert-manager
    `pkg/util/solverpicker`.
    """
    fitting = [solver for solver in solvers if solver.challenge_type in offered]
    ranked = [(rank, solver) for solver in fitting if (rank := _rank(solver.selector, name.lower(), labels))]
    # `max` takes the first of equals.
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _rank(selector: Selector | None, name: str, labels: Mapping[str, str]) -> tuple[bool, int, int] | None:
    """How exact a match is; None: no match."""
    if selector is None:
        return False, 0, 0
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return None
    is_named = name in (other.lower().rstrip(".") for other in selector.dns_names)
    plain = f".{name.removeprefix('*.')}"
    zones = (zone.lower().strip(".") for zone in selector.dns_zones)
    longest = max((len(zone) for zone in zones if zone and plain.endswith(f".{zone}")), default=0)
    if (selector.dns_names and not is_named) or (selector.dns_zones and not longest):
        return None
    return is_named, longest, len(selector.match_labels)


def overridden(solver: Solver, annotations: Mapping[str, str], namespace: str) -> Solver:
    """The solver, changed by the annotations of an Order of that namespace, copied from its Certificate.
    Source: cert-manager documentation, "Supported Annotations"; `pkg/controller/acmeorders/util.go`."""
    http01 = solver.http01
    if http01 is None:
        return solver
    if (ingress := http01.ingress) is not None:
        if name := annotations.get(known.OVERRIDE_NAME):
            ingress = replace(ingress, name=name, class_=None, ingress_class_name=None)
        elif class_name := annotations.get(known.OVERRIDE_CLASS_NAME):
            ingress = replace(ingress, name="", class_=None, ingress_class_name=class_name)
        elif class_ := annotations.get(known.OVERRIDE_CLASS):
            ingress = replace(ingress, name="", class_=class_, ingress_class_name=None)
        return replace(solver, http01=replace(http01, ingress=ingress))
    route, name = http01.gateway_http_route, annotations.get(known.PARENT_NAME)
    if route is None or not name:
        return solver
    # The annotations' parent is added to the solver's parents, unless it is among them.
    kind = annotations.get(known.PARENT_KIND) or None
    parent = ParentRef(
        group=EXPERIMENTAL_LISTENER_SETS.group if kind == EXPERIMENTAL_LISTENER_SETS.kind else None,
        kind=kind,
        namespace=annotations.get(known.PARENT_NAMESPACE) or None,
        name=name,
    )
    if any(_identity(other, namespace) == _identity(parent, namespace) for other in route.parent_refs):
        return solver
    route = replace(route, parent_refs=(*route.parent_refs, parent))
    return replace(solver, http01=replace(http01, gateway_http_route=route))


def _identity(parent: ParentRef, namespace: str) -> tuple[str, str, str, str]:
    """The object that a parent reference names, without section and port."""
    group = GATEWAY_GROUP if parent.group is None else parent.group
    return group, parent.kind or "Gateway", parent.namespace or namespace, parent.name


def with_the_last(
    caches: Caches, is_proven: Callable[[Challenge], bool], enqueue_order: Callable[[Challenge], None]
) -> Callable[[Challenge], None]:
    """As `enqueue_order`, but not while other names keep the Order waiting, because it would read through all
    of them at each. An Order that shows a reason is enqueued for each."""

    def enqueue(challenge: Challenge) -> None:
        owner = controller_of(challenge.metadata)
        key = ObjectKey(challenge.metadata.namespace, owner.name) if owner is not None else None
        order = caches.orders.cache.get(key) if key is not None else None
        if order is None or order.status.reason or not has_open_names(order):
            enqueue_order(challenge)

    def has_open_names(order: Order) -> bool:
        # The youngest are mostly the last to be proven.
        return any(
            not (item.status.is_final or item.metadata.deletion_timestamp is not None or is_proven(item))
            for item in reversed(caches.challenges_of(order.metadata))
        )

    return enqueue
