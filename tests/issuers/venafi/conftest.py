"""A fake Certificate Manager for each test, and issuers of its three products with the real HTTP client."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from certwright.issuers.contract import Failed, Outcome, Pending, ServerTools, Signed, SigningRequest, Tools
from certwright.issuers.venafi.issuer import Venafi
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from certwright.kube.util.executor import Inline
from certwright.pki.csr import CsrPlan
from certwright.resources.issuer import IssuerSpec, VenafiCloud, VenafiIssuer, VenafiNGTS, VenafiTPP
from certwright.resources.references import LocalObjectReference, SecretKeySelector
from conformance.check_issuer import Setup
from issuers.conftest import view
from support.venafi.server import FakeVenafi, fake_venafi
from support.venafi.state import API_KEY, TSG

PLAN = CsrPlan(common_name="web.example.org", dns_names=("web.example.org", "example.org"))


@pytest.fixture
def fake() -> Iterator[FakeVenafi]:
    with fake_venafi() as venafi:
        yield venafi


@dataclass
class VenafiSetup(Setup):
    """A `venafi` issuer. `crash` forgets what a process knows."""

    fake: FakeVenafi = field(kw_only=True)
    clients: list[HttpsClient] = field(default_factory=list)
    requests: int = 0

    def client(self, tls: ServerTls, fix: str) -> HttpClient:
        """A new client, closed at the end of the test. The URLs of SaaS and NGTS have public CAs."""
        trusted = tls if tls.ca_pem else dataclasses.replace(tls, ca_pem=self.fake.ca_pem)
        self.clients.append(HttpsClient(trusted, user_agent="test", trust_fix=fix, timeout_s=20.0))
        return self.clients[-1]

    @property
    def tools(self) -> Tools:
        """What the issuer may use."""

        async def no_token(account: str, _audiences: object) -> str:
            raise AssertionError(account)

        def no_client(rules: ServerRules) -> HttpClient:
            raise AssertionError(rules)

        servers = ServerTools(client=self.client, get_token=no_token, trusted_client=no_client)
        return Tools(get_secret=self.get_secret, executor=Inline(), now=lambda: self.now, servers=servers)

    @property
    def spec(self) -> VenafiIssuer:
        assert self.view.spec.venafi is not None
        return self.view.spec.venafi

    def change(self, **fields: object) -> None:
        """Another generation of the issuer."""
        spec = IssuerSpec(venafi=msgspec.structs.replace(self.spec, **fields))
        self.view = replace(self.view, generation=self.view.generation + 1, spec=spec)

    def crash(self) -> None:
        self.issuer = Venafi()

    def request_with(self, csr_pem: bytes, plan: CsrPlan = PLAN) -> SigningRequest:
        """Each request has its own UID."""
        made = super().request_with(csr_pem, plan)
        self.requests += 1
        meta = msgspec.structs.replace(
            made.request.metadata, uid=f"uid-{self.requests}", creation_timestamp=self.now
        )
        return dataclasses.replace(made, request=msgspec.structs.replace(made.request, metadata=meta))

    async def process(self, signing: SigningRequest) -> tuple[SigningRequest, Outcome]:
        """Sign as the controller does: annotations are saved, and `sign` is called again."""
        while True:
            outcome = await super().sign(signing)
            if not isinstance(outcome, Pending) or not outcome.annotations:
                return signing, outcome
            signing = annotated(signing, dict(outcome.annotations))

    async def sign(self, signing: SigningRequest) -> Outcome:
        """The outcome in the end."""
        return (await self.process(signing))[1]

    async def issue(self, plan: CsrPlan = PLAN) -> Signed:
        """A certificate, or an assertion."""
        return await self.signed(self.request(plan))

    async def refusal(self, plan: CsrPlan = PLAN) -> Failed:
        """The failure of a request, or an assertion."""
        return await self.failed(self.request(plan))

    async def message(self) -> str:
        """Why the issuer is not ready."""
        checked = await self.issuer.check(self.view, self.tools)
        assert not checked.ready
        return checked.message


def annotated(signing: SigningRequest, annotations: dict[str, str]) -> SigningRequest:
    """The request with these annotations as well."""
    meta = signing.request.metadata
    meta = msgspec.structs.replace(meta, annotations={**meta.annotations, **annotations})
    return dataclasses.replace(signing, request=msgspec.structs.replace(signing.request, metadata=meta))


def spec_of(product: str, fake: FakeVenafi) -> VenafiIssuer:
    """The spec of an issuer of that product at the fake."""
    login = LocalObjectReference(name="login")
    match product:
        case "cloud":
            ref = SecretKeySelector(name="login")
            return VenafiIssuer(zone="Shop\\Web", cloud=VenafiCloud(url=fake.url, api_token_secret_ref=ref))
        case "ngts":
            ngts = VenafiNGTS(
                url=fake.ngts_url, token_endpoint=fake.token_url, tsg_id=TSG, credentials_ref=login
            )
            return VenafiIssuer(zone="Web", ngts=ngts)
        case _:
            url = f"{fake.url}/vedsdk"
            return VenafiIssuer(
                zone="Web", tpp=VenafiTPP(url=url, credentials_ref=login, ca_bundle=fake.ca_pem)
            )


def secret_of(product: str, fake: FakeVenafi) -> dict[str, bytes]:
    """The Secret `login` of such an issuer."""
    match product:
        case "tpp by token":
            return {"access-token": fake.state.new_token().encode() + b"\n"}
        case "tpp":
            return {"username": b"alice", "password": b"secret"}
        case "cloud":
            return {"api-key": API_KEY.encode()}
        case _:
            return {"client-id": b"alice", "client-secret": b"secret"}


PRODUCTS = ("tpp", "tpp by token", "cloud", "ngts")


def make_setup(product: str, fake: FakeVenafi) -> VenafiSetup:
    """An issuer of that product."""
    issuer = replace(view(IssuerSpec(venafi=spec_of(product, fake))), name="venafi", uid=f"uid-{product}")
    created = VenafiSetup(Venafi(), issuer, {"login": secret_of(product, fake)}, fake=fake)
    fake.state.now = created.now
    return created


@pytest.fixture(params=PRODUCTS)
async def setup(request: pytest.FixtureRequest, fake: FakeVenafi) -> AsyncIterator[VenafiSetup]:
    """An issuer of each product."""
    async for made in _closing(make_setup(str(request.param), fake)):
        yield made


async def _closing(made: VenafiSetup) -> AsyncIterator[VenafiSetup]:
    yield made
    for client in made.clients:
        await client.close()


@pytest.fixture
async def tpp(fake: FakeVenafi) -> AsyncIterator[VenafiSetup]:
    """An issuer of TPP by user and password."""
    async for made in _closing(make_setup("tpp", fake)):
        yield made


@pytest.fixture
async def cloud(fake: FakeVenafi) -> AsyncIterator[VenafiSetup]:
    async for made in _closing(make_setup("cloud", fake)):
        yield made


@pytest.fixture
def trusted(fake: FakeVenafi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CA of the fake is one of the system's: SaaS and NGTS have no caBundle."""
    fake.state.now = datetime.now(UTC)
    (tmp_path / "ca.crt").write_bytes(fake.ca_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
