"""What a solver is made for: the arguments of `solver_factory.py`, without its libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from certwright.issuers.contract import GetSecret
from certwright.resources.acme import Challenge
from certwright.resources.solver import Solver

if TYPE_CHECKING:
    from certwright.controllers.acme.options import AcmeOptions

NO_HTTP01_LISTENER: Final = (
    "no HTTP-01 listener is running; start certwright with --http01-listen :80, or use http01.webroot, dns01 "
    "or exec"
)
NO_TLSALPN01_LISTENER: Final = (
    "no TLS-ALPN-01 listener is running; start certwright with --tlsalpn01-listen :443"
)


class SolverUse(msgspec.Struct, frozen=True, kw_only=True):
    """A solver of an issuer. `get_secret` reads the issuer's Secrets, from the namespace `secrets_in`.
    `challenge` is the Challenge to solve; None: the solver is only verified."""

    solver: Solver
    issuer_kind: str
    get_secret: GetSecret
    secrets_in: str
    challenge: Challenge | None = None


def missing_listener(solver: Solver, options: AcmeOptions) -> str:
    """That this process does not listen where the solver needs it, as a sentence; empty if it does."""
    if solver.http01 is not None and solver.http01.webroot is None and options.responder is None:
        return NO_HTTP01_LISTENER
    if solver.tls_alpn01 is not None and options.listener is None:
        return NO_TLSALPN01_LISTENER
    return ""
