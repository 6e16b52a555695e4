"""Settings of ACME."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from certwright.acme.ratelimits.published import Chosen
from certwright.kube.api.meta import ObjectKey
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.solver import Solver

if TYPE_CHECKING:
    # Loaded with the first ACME issuer, or the first Challenge.
    from certwright.acme.protocol.client import MakeTransport
    from certwright.acme.solvers.contract import Check
    from certwright.acme.solvers.http01 import Responder
    from certwright.acme.solvers.tlsalpn01 import Listener


class ClusterListener(msgspec.Struct, frozen=True, kw_only=True):
    """The address of this process's HTTP-01 listener inside the cluster: IP addresses and port. `service`:
    the Service of all replicas, which listen on the same port; None: challenges route to this process only.
    Route objects have these `labels`, and Ingresses paths of this type."""

    addresses: tuple[str, ...]
    port: int
    service: ObjectKey | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    path_type: str = "Exact"


class AcmeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of ACME; names and meanings as cert-manager's flags where it has them.

    `responder` and `listener` are None where this process does not listen for HTTP-01 or TLS-ALPN-01.
    With `cluster_listener`, HTTP-01 solvers for Ingresses and Gateways create objects that lead there.
    `make_transport` replaces HTTP to ACME servers in simulations, and `check` the self-checks in tests.
    `policy` is what objects may make this process do.
    """

    max_concurrent_challenges: int = 60
    concurrent_checks: int = 100
    http01_check_port: int = 80
    tlsalpn01_check_port: int = 443
    http01_nameservers: tuple[str, ...] = ()
    dns01_nameservers: tuple[str, ...] = ()
    dns01_recursive_only: bool = False
    dns01_check_period: timedelta = timedelta(seconds=10)
    dns01_authority_port: int = 53
    responder: Responder | None = None
    cluster_listener: ClusterListener | None = None
    listener: Listener | None = None
    make_transport: MakeTransport | None = None
    check: Check | None = None
    limits: Chosen = msgspec.field(default_factory=dict)
    policy: OperatorPolicy = msgspec.field(default_factory=OperatorPolicy)


NO_HTTP01_LISTENER: Final = (
    "no HTTP-01 listener is running; start certwright with --http01-listen :80 (`http01Listen` in its "
    "configuration), or use http01.webroot, dns01 or exec"
)
NO_TLSALPN01_LISTENER: Final = (
    "no TLS-ALPN-01 listener is running; start certwright with --tlsalpn01-listen :443 (`tlsalpn01Listen` "
    "in its configuration)"
)


def missing_listener(solver: Solver, options: AcmeOptions) -> str:
    """That this process lacks the listener that the solver needs, as a sentence; empty if it has the
    listener."""
    if solver.http01 is not None and solver.http01.webroot is None and options.responder is None:
        return NO_HTTP01_LISTENER
    if solver.tls_alpn01 is not None and options.listener is None:
        return NO_TLSALPN01_LISTENER
    return ""
