"""Orders and Challenges written by hand: no server is asked, no solver runs, and they can be deleted.

The attacks of a tenant with the role `edit` in one namespace, against the account of a ClusterIssuer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from certwright.acme.protocol.messages import Action
from certwright.controllers.acme import order_requests, solver_factory
from certwright.kube.api import codec
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import Kind
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources import names
from certwright.resources.acme import Challenge, Order
from certwright.resources.table import CERTIFICATE_REQUESTS, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from controllers.acme.fake_world import HTTP01, FakeWorld

pytestmark = pytest.mark.every(3)

Json = dict[str, Any]
ISSUER = {"name": "acme", "kind": "ClusterIssuer"}
DNS01 = {
    "dns01": {"rfc2136": {"nameserver": "192.0.2.1", "tsigSecretSecretRef": {"name": "tsig", "key": "key"}}}
}


def csr(*dns_names: str) -> bytes:
    """A signing request with a key of its own."""
    return build_csr(CsrPlan(dns_names=dns_names), generate(KeyPlan.of("ECDSA", 256)))


@dataclass(slots=True)
class Tenant:
    """Writes what the role `edit` may write, in one namespace."""

    fake: FakeWorld

    async def create(self, kind: Kind[Any], name: str, owner: Json | None, spec: Mapping[str, Any]) -> Any:
        """Create an object with a controller reference."""
        owners = [{"controller": True, **owner}] if owner is not None else []
        meta: Json = {"name": name, "namespace": "default", "ownerReferences": owners}
        if kind is CHALLENGES:
            meta["finalizers"] = [names.ACME_FINALIZER]
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        made = await self.fake.world.create(kind, codec.from_dict(kind, manifest))
        await self.fake.world.settle()
        return made

    async def order(self, name: str, owner: Json | None, request: bytes, *dns_names: str) -> Order:
        """An Order."""
        spec = {"request": request, "dnsNames": list(dns_names), "issuerRef": ISSUER}
        made: Order = await self.create(ORDERS, name, owner, _json(spec))
        return made

    async def challenge(self, name: str, owner: Json | None, **spec: Any) -> Challenge:
        """A Challenge: a copy of one that works, but for what is said."""
        manifest = {
            "url": f"{self.fake.ca.base}/challenge/1/http-01",
            "authorizationURL": f"{self.fake.ca.base}/authz/1",
            "dnsName": "a.example.org",
            "type": "HTTP-01",
            "token": "token-1",
            "key": "token-1.x",
            "solver": HTTP01,
            "issuerRef": ISSUER,
            **spec,
        }
        made: Challenge = await self.create(CHALLENGES, name, owner, manifest)
        return made

    async def is_refused(self, kind: Kind[Any], name: str) -> str:
        """The reason of an object for which nothing is done, also later and after a restart."""
        asked, fake = len(self.fake.ca.requests), self.fake
        await fake.world.advance(timedelta(hours=7))
        await fake.start()
        await fake.world.advance(timedelta(hours=1))
        late = {action for action, _ in fake.ca.requests[asked:]}
        assert late <= {Action.DIRECTORY, Action.NEW_NONCE, Action.RENEWAL_INFO}
        assert fake.shown.tokens == {}
        obj = await fake.world.get(kind, name)
        assert obj.status.reason.startswith("Refused"), obj.status
        return str(obj.status.reason)

    async def can_delete(self, kind: Kind[Any], name: str) -> None:
        """It goes when it is deleted, without a solver."""
        await self.fake.world.client.delete(kind, name, "default")
        await self.fake.world.settle()
        with pytest.raises(NotFound):
            await self.fake.world.get(kind, name)


def _json(spec: Mapping[str, Any]) -> Json:
    result: Json = msgspec.json.decode(msgspec.json.encode(spec))
    return result


def owner_of(kind: Kind[Any], obj: Any) -> Json:
    """A reference to the object."""
    meta = obj.metadata
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid}


@pytest.fixture
async def tenant(fake: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """A tenant beside a ClusterIssuer that works. No solver but the listener may be made."""

    async def no_solver(*_: Any) -> Any:
        raise AssertionError("a solver was made for a Challenge written by hand")

    monkeypatch.setattr(solver_factory.Solvers, "_dns01", no_solver)
    monkeypatch.setattr(solver_factory, "Program", no_solver)
    return Tenant(fake)


async def test_an_order_that_nobody_has_approved_is_refused(tenant: Tenant) -> None:
    await tenant.order("forged", None, csr("bank.example.com"), "bank.example.com")
    assert "no CertificateRequest owns this Order" in await tenant.is_refused(ORDERS, "forged")
    await tenant.can_delete(ORDERS, "forged")


async def test_an_order_of_a_request_that_does_not_exist_is_refused(tenant: Tenant) -> None:
    owner = {"apiVersion": CERTIFICATE_REQUESTS.api_version, "kind": "CertificateRequest"}
    await tenant.order("forged", owner | {"name": "none", "uid": "u"}, csr("b.example.com"), "b.example.com")
    assert tenant.fake.ca.orders == {}
    # The garbage collector deletes it.
    assert await tenant.fake.orders() == []


async def approved(tenant: Tenant) -> Json:
    """A reference to a request of the tenant's own that is approved."""
    await tenant.fake.issue("web", "a.example.org")
    await tenant.fake.world.advance(timedelta(minutes=1))
    assert await tenant.fake.world.is_ready("web")
    (request,) = await tenant.fake.requests()
    return owner_of(CERTIFICATE_REQUESTS, request)


async def test_an_order_with_other_names_than_its_request_is_refused(tenant: Tenant) -> None:
    tenant.fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="864000")
    await tenant.fake.issue("web", "a.example.org")
    (request,) = await tenant.fake.requests()
    owner = owner_of(CERTIFICATE_REQUESTS, request)
    await tenant.order("forged", owner, request.spec.request, "a.example.org", "bank.example.com")
    assert "spec.dnsNames" in await tenant.is_refused(ORDERS, "forged")
    assert tenant.fake.ca.orders == {}


async def test_an_order_with_another_key_than_its_request_is_refused(tenant: Tenant) -> None:
    owner = await approved(tenant)
    await tenant.order("forged", owner, csr("a.example.org"), "a.example.org")
    assert "spec.request" in await tenant.is_refused(ORDERS, "forged")


async def test_an_order_of_another_issuer_than_its_request_is_refused(tenant: Tenant) -> None:
    await tenant.fake.issuer("other")
    await tenant.fake.issue("web", "a.example.org", issuer="other")
    await tenant.fake.world.advance(timedelta(minutes=1))
    (request,) = await tenant.fake.requests()
    await tenant.order(
        "forged", owner_of(CERTIFICATE_REQUESTS, request), request.spec.request, "a.example.org"
    )
    assert "spec.issuerRef" in await tenant.is_refused(ORDERS, "forged")


async def test_a_challenge_without_an_order_is_refused_and_can_be_deleted(tenant: Tenant) -> None:
    await tenant.challenge(
        "forged", None, url="http://127.0.0.1:1/x", authorizationURL="http://127.0.0.1:1/y"
    )
    assert "no Order that exists owns this Challenge" in await tenant.is_refused(CHALLENGES, "forged")
    await tenant.can_delete(CHALLENGES, "forged")


async def pending_order(tenant: Tenant) -> tuple[Json, Challenge]:
    """An Order of the tenant's own that waits for a verdict, and its Challenge."""
    tenant.fake.ca.slow.add("a.example.org")
    await tenant.fake.issue("web", "a.example.org")
    (order,) = await tenant.fake.orders()
    (challenge,) = await tenant.fake.challenges()
    return owner_of(ORDERS, order), challenge


def problem_of(fake: FakeWorld, challenge: Challenge) -> str:
    """Why the controllers do not act on the Challenge; empty: they do."""
    assert fake.world.controllers is not None
    wiring = fake.world.controllers.wiring
    (client,) = wiring.clients.registry._clients.values()
    spec = codec.from_dict(CLUSTER_ISSUERS, _ISSUER).spec.acme
    assert spec is not None
    shown_for = partial(order_requests.shown_for, client.key)
    return wiring.provenance.problem_of_challenge(challenge, spec.solvers, shown_for)


_ISSUER = {
    "apiVersion": CLUSTER_ISSUERS.api_version,
    "kind": CLUSTER_ISSUERS.kind,
    "metadata": {"name": "acme"},
    "spec": {"acme": {"server": "https://x", "privateKeySecretRef": {"name": "x"}, "solvers": [HTTP01]}},
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": "https://victim.example/challenge"}, "spec.url"),
        ({"authorizationURL": "https://victim.example/authz"}, "spec.authorizationURL"),
        ({"token": "cronjob"}, "spec.url, spec.token"),
        ({"key": "* * * * * root id\n"}, "spec.key"),
        ({"dnsName": "bank.example.com"}, "spec.dnsName"),
        ({"solver": DNS01}, "spec.solver"),
        ({"solver": {"exec": {"command": ["/bin/id"], "type": "HTTP-01"}}}, "spec.solver"),
        ({"solver": {"http01": {"webroot": {"path": "/etc/new"}}}}, "spec.solver"),
    ],
)
async def test_a_challenge_that_differs_from_its_order_is_refused(
    tenant: Tenant, change: Json, field: str
) -> None:
    owner, real = await pending_order(tenant)
    copied = {
        "url": real.spec.url,
        "authorizationURL": real.spec.authorization_url,
        "token": real.spec.token,
        "key": real.spec.key,
    }
    forged = await tenant.challenge("forged", owner, **{**copied, **change})
    assert field in problem_of(tenant.fake, forged)
    assert not problem_of(tenant.fake, real)
    # Its Order did not ask for it, and has deleted it.
    assert [challenge.metadata.name for challenge in await tenant.fake.challenges()] == [real.metadata.name]
    assert not any("victim" in url for _, url in tenant.fake.ca.requests)
    assert set(tenant.fake.shown.tokens) == {real.spec.token}


async def test_a_forged_status_does_not_make_the_server_ask_elsewhere(tenant: Tenant) -> None:
    """With the right to write `orders/status`, which the role `edit` does not give."""
    tenant.fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="3600")
    await tenant.fake.issue("web", "a.example.org")
    (order,) = await tenant.fake.orders()
    status: Json = {"url": "https://victim.example/order", "finalizeURL": "https://victim.example/finalize"}
    status |= {"state": "pending", "authorizations": [{"url": "https://victim.example/authz"}]}
    await tenant.fake.world.client.patch(
        ORDERS, order.metadata.name, "default", {"status": status}, subresource="status"
    )
    await tenant.fake.world.advance(timedelta(hours=2))
    assert not any("victim" in url for _, url in tenant.fake.ca.requests)


async def test_a_forged_authorization_of_another_order_is_refused(tenant: Tenant) -> None:
    """As before: the URLs are the CA's, but another tenant's."""
    fake = tenant.fake
    fake.ca.slow |= {"bank.example.com", "a.example.org"}
    await fake.issue("bank", "bank.example.com")
    (other,) = fake.ca.authorizations.values()
    fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="3600")
    await fake.issue("web", "a.example.org")
    (order,) = [order for order in await fake.orders() if order.metadata.name.startswith("web")]
    offered = [
        {"url": f"{fake.ca.base}/challenge/{other.token[6:]}/http-01", "token": "x", "type": "http-01"}
    ]
    forged = {"url": other.url, "identifier": "a.example.org", "challenges": offered}
    status: Json = {"url": f"{fake.ca.base}/order/99", "finalizeURL": f"{fake.ca.base}/order/99/finalize"}
    status |= {"state": "pending", "authorizations": [forged]}
    await fake.world.client.patch(
        ORDERS, order.metadata.name, "default", {"status": status}, subresource="status"
    )
    await fake.world.advance(timedelta(hours=2))
    await fake.start()
    await fake.world.advance(timedelta(minutes=10))
    (challenge,) = [
        challenge for challenge in await fake.challenges() if challenge.metadata.name.startswith("web")
    ]
    assert "does not offer this challenge" in challenge.status.reason
    assert "x" not in fake.shown.tokens


async def test_a_ca_that_asks_for_another_name_gets_no_proof_of_it(fake: FakeWorld) -> None:
    fake.ca.answers_with["a.example.org"] = "victim.example.org"
    await fake.issue("web", "a.example.org")
    (order,) = await fake.orders()
    assert order.status.state == "errored"
    assert '"victim.example.org", which was not ordered' in order.status.reason
    assert await fake.challenges() == []
    assert fake.shown.tokens == {}


async def test_a_ca_that_names_urls_of_another_server_is_not_followed(fake: FakeWorld) -> None:
    fake.ca.order_base = "https://victim.example"
    await fake.issue("web", "a.example.org", after=timedelta(minutes=1))
    assert not any("victim" in url for _, url in fake.ca.requests)
    assert "is not a URL of the ACME server" in (await fake.orders())[0].status.reason


async def test_an_order_goes_on_when_its_request_is_approved(tenant: Tenant) -> None:
    """As of cert-manager, whose Order may be read before its request."""
    await tenant.fake.world.stop_controllers()
    request = csr("a.example.org")
    made = await tenant.create(
        CERTIFICATE_REQUESTS, "theirs", None, _json({"request": request, "issuerRef": ISSUER})
    )
    await tenant.order("theirs-7", owner_of(CERTIFICATE_REQUESTS, made), request, "A.example.org")
    await tenant.fake.start()
    await tenant.fake.world.advance(timedelta(minutes=1))
    (order,) = await tenant.fake.orders()
    assert (order.metadata.name, order.status.state) == ("theirs-7", "valid")
