"""Which solver and self-check a name gets, and the names of Orders and Challenges."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.names import NameServers
from certwright.controllers.acme import solver_factory
from certwright.controllers.acme.challenge_progress import SolverUse
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.order_challenges import choose
from certwright.kube.api import codec
from certwright.resources.acme import ChallengeSpec, OrderSpec, challenge_name, fnv32, order_name
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver
from certwright.resources.table import CLUSTER_ISSUERS

_BOTH = ("HTTP-01", "DNS-01")


def solver(label: str, *, http: bool = False, **selector: Any) -> Solver:
    """A solver that can be told from others; without `selector` it is for everything."""
    provider = {"http01": {"webroot": {"path": f"/{label}"}}}
    dns = {"dns01": {"rfc2136": {"nameserver": label}}}
    config = {**(provider if http else dns), **({"selector": selector} if selector else {})}
    acme = {"server": "https://x", "privateKeySecretRef": {"name": "x"}, "solvers": [config]}
    issuer = {
        "apiVersion": CLUSTER_ISSUERS.api_version,
        "kind": "ClusterIssuer",
        "metadata": {"name": "x"},
        "spec": {"acme": acme},
    }
    made: Solver = codec.from_dict(CLUSTER_ISSUERS, issuer).spec.acme.solvers[0]  # type: ignore[union-attr]
    return made


def label_of(selected: Solver | None) -> str:
    """Which one it is."""
    if selected is None:
        return ""
    if selected.dns01 is not None and selected.dns01.rfc2136 is not None:
        return selected.dns01.rfc2136.nameserver
    assert selected.http01 is not None
    assert selected.http01.webroot is not None
    return selected.http01.webroot.path[1:]


ANY = solver("any")
ZONE = solver("zone", dnsZones=["example.org"])
DEEP = solver("deep", dnsZones=["other.net", "a.example.org"])
NAME = solver("name", dnsNames=["www.a.example.org"])
LABEL = solver("label", matchLabels={"tier": "web"})
LABELS = solver("labels", matchLabels={"tier": "web", "team": "x"})
LABEL_ZONE = solver("label-zone", matchLabels={"tier": "web"}, dnsZones=["example.org"])


@pytest.mark.parametrize(
    ("solvers", "name", "labels", "expected"),
    [
        ([ANY, ZONE], "b.example.org", {}, "zone"),
        ([ZONE, ANY], "b.example.org", {}, "zone"),
        ([ANY, ZONE], "b.example.com", {}, "any"),
        ([ZONE], "b.example.com", {}, ""),
        ([ZONE], "notexample.org", {}, ""),
        ([ZONE], "example.org", {}, "zone"),
        ([ZONE], "*.example.org", {}, "zone"),
        ([ZONE], "B.EXAMPLE.org", {}, "zone"),
        ([ZONE, DEEP], "www.a.example.org", {}, "deep"),
        ([DEEP, ZONE], "b.example.org", {}, "zone"),
        ([DEEP, NAME, ANY], "www.a.example.org", {}, "name"),
        ([NAME], "b.www.a.example.org", {}, ""),
        ([solver("wild", dnsNames=["*.example.org"])], "*.example.org", {}, "wild"),
        ([solver("wild", dnsNames=["*.example.org"])], "a.example.org", {}, ""),
        ([solver("apex", dnsNames=["example.org"])], "*.example.org", {}, ""),
        ([ANY, LABEL], "b.example.org", {"tier": "web"}, "label"),
        ([ANY, LABEL], "b.example.org", {"tier": "db"}, "any"),
        ([LABEL, LABELS], "b.example.org", {"tier": "web", "team": "x"}, "labels"),
        ([LABELS, LABEL], "b.example.org", {"tier": "web"}, "label"),
        # A zone is more than any number of labels, a name more than any zone.
        ([LABELS, ZONE], "b.example.org", {"tier": "web", "team": "x"}, "zone"),
        ([ZONE, LABEL_ZONE], "b.example.org", {"tier": "web"}, "label-zone"),
        ([LABEL_ZONE], "b.example.org", {}, ""),
        ([LABEL_ZONE, NAME], "www.a.example.org", {"tier": "web"}, "name"),
        # Of equals the first.
        ([solver("first"), solver("second")], "b.example.org", {}, "first"),
        ([solver("first", dnsZones=["example.org"]), ZONE], "b.example.org", {}, "first"),
        ([solver("page", http=True), ZONE], "b.example.org", {}, "zone"),
        ([], "b.example.org", {}, ""),
    ],
)
def test_the_most_exact_solver_is_taken(
    solvers: list[Solver], name: str, labels: dict[str, str], expected: str
) -> None:
    assert label_of(choose(solvers, name=name, labels=labels, offered=_BOTH)) == expected


def test_a_solver_whose_challenge_is_not_offered_is_no_solver() -> None:
    solvers = [solver("page", http=True, dnsNames=["*.example.org"]), ANY]
    assert label_of(choose(solvers, name="*.example.org", labels={}, offered=("DNS-01",))) == "any"
    assert choose(solvers[:1], name="*.example.org", labels={}, offered=("DNS-01",)) is None


def test_numbers_are_those_of_fnv_1() -> None:
    # Vectors of the authors of FNV (32 bits, FNV-1, not 1a).
    assert fnv32(b"") == 0x811C9DC5
    assert fnv32(b"a") == 0x050C5D7E
    assert fnv32(b"foobar") == 0x31F0B262


def test_names_are_the_first_52_characters_and_a_number() -> None:
    spec = OrderSpec(request=b"x", issuer_ref=IssuerReference(name="acme"), dns_names=("a.example.org",))
    stem = "a" * 51 + "." + "b" * 30
    assert order_name("web-1", spec).startswith("web-1-")
    assert order_name(stem, spec).rpartition("-")[0] == "a" * 51
    assert len(order_name("c" * 253, spec)) <= 63
    assert order_name("web-1", spec) == order_name("web-1", spec)
    assert order_name("web-1", spec) != order_name(
        "web-1", OrderSpec(request=b"y", issuer_ref=spec.issuer_ref)
    )


def test_a_challenge_of_another_solver_has_another_name() -> None:
    def spec(acme_solver: Solver) -> ChallengeSpec:
        return ChallengeSpec(
            url="u",
            authorization_url="a",
            dns_name="n",
            type="DNS-01",
            token="t",
            key="k",
            solver=acme_solver,
            issuer_ref=IssuerReference(name="acme"),
        )

    assert challenge_name("web-1-7", spec(ANY)) != challenge_name("web-1-7", spec(ZONE))


async def check_of(dns01: object) -> tuple[tuple[str, ...], bool]:
    """The name servers that its self-check asks, with `--dns01-recursive-nameservers=192.0.2.1:53`, and
    whether no others."""

    async def no_secret(_name: str) -> Mapping[str, bytes] | None:
        return None

    spec = msgspec.convert({"dns01": dns01}, Solver)
    use = SolverUse(solver=spec, issuer_kind="Issuer", get_secret=no_secret, secrets_in="default")
    options = AcmeOptions(dns01_nameservers=("192.0.2.1:53",))
    nothing = cast(Any, None)  # No webhook and no DNS host is asked.
    solvers = solver_factory.Solvers(options, nothing, nothing, lambda: datetime.now(UTC))
    with (
        patch.object(solver_factory, "DnsCheck") as check,
        patch.object(solver_factory, "NameServers", wraps=NameServers) as names,
    ):
        await solvers.make(use)
    return names.call_args.args[0], check.call_args.kwargs["recursive_only"]


async def test_name_servers_of_a_solver_replace_those_of_the_flag_and_no_others_are_asked() -> None:
    update = {"nameserver": "192.0.2.9"}
    assert await check_of({"rfc2136": update}) == (("192.0.2.1:53",), False)
    chosen = ["192.0.2.2:53", "[2001:db8::2]:53"]
    assert await check_of({"rfc2136": update, "nameservers": chosen}) == (tuple(chosen), True)


async def test_an_issuer_names_no_server_of_dns_over_https() -> None:
    spec = {"rfc2136": {"nameserver": "192.0.2.9"}, "nameservers": ["https://internal.example/dns-query"]}
    with pytest.raises(SolverError, match="only --dns01-recursive-nameservers may name"):
        await check_of(spec)
