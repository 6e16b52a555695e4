"""Which Challenges an Order needs: one for each name that the server has not validated yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from certwright.controllers.acme.choice import choose
from certwright.controllers.acme.naming import challenge_name
from certwright.controllers.acme.routes.overrides import overridden
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import ObjectMeta
from certwright.resources import names
from certwright.resources.acme import ACMEAuthorization, Challenge, ChallengeSpec, Order
from certwright.resources.solver import CHALLENGE_TYPES, Solver
from certwright.resources.table import ORDERS

TYPES: Final[Mapping[str, str]] = {kind.lower(): kind for kind in CHALLENGE_TYPES}
"""The types of challenge that solvers answer: the server's words, and those of `spec.type`."""

ShownFor = Callable[[str, str], str]
"""What is shown for a type (the server's word) and a token."""


class NoSolver(Exception):
    """No solver of the issuer fits a name; the text is one sentence with the fix."""


class ChallengeChanged(NoSolver):
    """An admission webhook has made a new Challenge useless, so that it was deleted."""


class _Choice(msgspec.Struct, frozen=True):
    solver: Solver
    url: str
    token: str
    type: str


def needed_challenges(order: Order, solvers: Sequence[Solver], shown_for: ShownFor) -> list[Challenge]:
    """The Challenges, by names that are the same whenever this is asked. Raises `NoSolver`."""
    return [
        _challenge(order, authorization, _choose(order, authorization, solvers), shown_for)
        for authorization in order.status.authorizations
        if authorization.initial_state != "valid"
    ]


def claim_same(desired: Challenge, current: dict[str, Challenge], order: str) -> Challenge | None:
    """Take the Challenge out of `current` (by name) that answers for `desired`; None if it is missing.

    cert-manager has made those whose name is not ours: one that answers the same challenge is kept.
    """
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


def _choose(order: Order, authorization: ACMEAuthorization, solvers: Sequence[Solver]) -> _Choice:
    name = full_name(authorization)
    offered = {
        TYPES[challenge.type]: challenge for challenge in authorization.challenges if challenge.type in TYPES
    }
    solver = choose(solvers, name=name, labels=order.metadata.labels, offered=offered)
    if solver is None:
        message = ", ".join(challenge.type for challenge in authorization.challenges) or "no challenge at all"
        raise NoSolver(
            f"no solver of the issuer fits {name}, for which the server offers {message}; add one to "
            "spec.acme.solvers, or widen its selector"
        )
    chosen = offered[solver.challenge_type]
    solver = overridden(solver, order.metadata.annotations, order.metadata.namespace)
    return _Choice(solver, chosen.url, chosen.token, chosen.type)


def full_name(authorization: ACMEAuthorization) -> str:
    """The name with its `*.`, as it was ordered."""
    return f"*.{authorization.identifier}" if authorization.wildcard else authorization.identifier


def _challenge(
    order: Order, authorization: ACMEAuthorization, choice: _Choice, shown_for: ShownFor
) -> Challenge:
    spec = ChallengeSpec(
        url=choice.url,
        authorization_url=authorization.url,
        dns_name=authorization.identifier,
        wildcard=bool(authorization.wildcard),
        type=choice.solver.challenge_type,
        token=choice.token,
        key=shown_for(choice.type, choice.token),
        solver=choice.solver,
        issuer_ref=order.spec.issuer_ref,
    )
    return Challenge(
        metadata=ObjectMeta(
            name=challenge_name(order.metadata.name, spec),
            namespace=order.metadata.namespace,
            annotations=_account(order, spec),
            owner_references=(controller_reference(ORDERS, order.metadata),),
            finalizers=(names.ACME_FINALIZER,) if has_outside_state(choice.solver) else (),
        ),
        spec=spec,
    )


def _account(order: Order, spec: ChallengeSpec) -> dict[str, str]:
    """The account that the name of the record depends on, for a clean-up after the issuer is gone."""
    account = order.metadata.annotations.get(names.ACME_ACCOUNT, "")
    return {names.ACME_ACCOUNT: account} if account and spec.type == "DNS-ACCOUNT-01" else {}
