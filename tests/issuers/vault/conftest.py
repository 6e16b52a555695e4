"""One OpenBao for the tests of this folder, and issuers that sign with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from certwright.issuers.contract import IssuerView, ServerTools, Tools
from certwright.issuers.vault.issuer import Vault
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from certwright.kube.util.executor import Inline
from certwright.resources.issuer import IssuerSpec, VaultAppRole, VaultAuth, VaultIssuer
from certwright.resources.references import SecretKeySelector
from conformance.check_issuer import Setup
from issuers.conftest import view
from support.openbao import Bao, app_role, openbao


@pytest.fixture(scope="module")
def bao() -> Iterator[Bao]:
    """A server that no test leaves sealed."""
    with openbao() as server:
        yield server


@dataclass
class VaultSetup(Setup):
    """A `vault` issuer, with the real HTTP client. `tokens` records the audiences asked for."""

    clients: list[HttpsClient] = field(default_factory=list)
    tokens: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    token: str = "a.b.c"
    environment: dict[str, str] = field(default_factory=dict)
    ambient_kinds: tuple[str, ...] = ()
    timeout_s: float = 60.0

    def client(self, tls: ServerTls, fix: str) -> HttpClient:
        """A new client, closed at the end of the test."""
        self.clients.append(HttpsClient(tls, user_agent="test", trust_fix=fix, timeout_s=self.timeout_s))
        return self.clients[-1]

    def trusted_client(self, rules: ServerRules) -> HttpClient:
        """A new client, closed at the end of the test."""
        self.clients.append(HttpsClient(ServerTls(), user_agent="test", trust_fix="", rules=rules))
        return self.clients[-1]

    async def get_token(self, account: str, audiences: Sequence[str]) -> str:
        """The token of any ServiceAccount."""
        self.tokens.append((account, tuple(audiences)))
        return self.token

    @property
    def tools(self) -> Tools:
        """What the issuer may use."""
        servers = ServerTools(
            client=self.client,
            get_token=self.get_token,
            trusted_client=self.trusted_client,
            environment=self.environment,
            allows_ambient=self.ambient_kinds.__contains__,
        )
        return Tools(get_secret=self.get_secret, executor=Inline(), now=lambda: self.now, servers=servers)

    def change(self, spec: VaultIssuer) -> None:
        """Another generation of the issuer."""
        self.view = replace(self.view, generation=self.view.generation + 1, spec=IssuerSpec(vault=spec))

    @property
    def spec(self) -> VaultIssuer:
        assert self.view.spec.vault is not None
        return self.view.spec.vault


def view_of(spec: VaultIssuer) -> IssuerView:
    return replace(view(IssuerSpec(vault=spec)), name="vault", uid="uid-vault")


MakeSetup = Callable[..., VaultSetup]


@pytest.fixture
async def make(bao: Bao) -> AsyncIterator[MakeSetup]:
    """Makes issuers; by AppRole unless `auth` says otherwise."""
    made: list[VaultSetup] = []

    def make_one(
        auth: VaultAuth | None = None, path: str = "pki/sign/web", namespace: str = ""
    ) -> VaultSetup:
        role, secret = app_role(bao)
        if auth is None:
            ref = SecretKeySelector(name="app-role", key="secretId")
            auth = VaultAuth(app_role=VaultAppRole(path="approle", role_id=role, secret_ref=ref))
        spec = VaultIssuer(auth=auth, server=bao.url, path=path, ca_bundle=bao.ca_pem, namespace=namespace)
        setup = VaultSetup(Vault(), view_of(spec), {"app-role": {"secretId": f"{secret}\n".encode()}})
        made.append(setup)
        return setup

    yield make_one
    for instance in made:
        for client in instance.clients:
            await client.close()


@pytest.fixture
def by_app_role(make: MakeSetup) -> VaultSetup:
    """An issuer that logs in by AppRole."""
    return make()
