"""What can be wrong with an ACME issuer: one sentence each, with what to do, in its condition."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
import trustme

from certwright.acme.protocol.messages import Action
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.resources import names
from certwright.resources.table import CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble, running_pebble

_MAC = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"
_SHORT_MAC = "a2lkLXNlY3JldC0x"


@pytest.fixture(scope="module")
def bound() -> Iterator[Pebble]:
    """A CA that wants accounts to be bound to its customers."""
    with running_pebble(
        externalAccountBindingRequired=True, externalAccountMACKeys={"kid-1": _MAC}
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(bound: Pebble) -> AsyncIterator[AcmeWorld]:
    """A world at that CA."""
    async with acme_world(bound) as made:
        for name, key in (
            ("right", _MAC),
            ("wrong", "A" * 43),
            ("broken", "not base64!"),
            ("short", _SHORT_MAC),
        ):
            data = {"key": base64.b64encode(key.encode()).decode()}
            await made.create(SECRETS, {"metadata": {"name": name, "namespace": "kube-system"}, "data": data})
        yield made


def binding(secret: str, key_id: str = "kid-1") -> dict[str, Any]:
    """An external account binding."""
    return {
        "externalAccountBinding": {"keyID": key_id, "keySecretRef": {"name": secret, "key": "key"}},
    }


async def verdict(world: AcmeWorld, name: str, **acme: Any) -> tuple[str, str, str]:
    """Status, reason and message of a new issuer's condition."""
    await world.issuer(name, **acme)
    return await world.verdict(name)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("secret", "key_id", "reason", "words"),
    [
        ("", "", "ErrRegisterACMEAccount", "set spec.acme.externalAccountBinding to what your CA gave you"),
        ("wrong", "kid-1", "ErrRegisterACMEAccount", "check the key ID and the key of spec.acme.external"),
        ("right", "kid-9", "ErrRegisterACMEAccount", "check the key ID and the key of spec.acme.external"),
        ("broken", "kid-1", "ErrRegisterACMEAccount", "is not base64url; copy it from the CA"),
        ("short", "kid-1", "ErrRegisterACMEAccount", "check the key ID and the key of spec.acme.external"),
        ("nobody", "kid-1", "ErrRegisterACMEAccount", 'Secret "nobody" of spec.acme.externalAccountBinding'),
        ("right", "kid-1", "ACMEAccountRegistered", "The ACME account was registered"),
    ],
)
async def test_an_account_must_be_bound_rightly(
    world: AcmeWorld, secret: str, key_id: str, reason: str, words: str
) -> None:
    acme = binding(secret, key_id) if secret else {}
    condition = await verdict(world, f"eab-{secret or 'none'}-{key_id or 'none'}", **acme)
    assert condition[1] == reason
    assert words in condition[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_imported_account_needs_no_binding(world: AcmeWorld) -> None:
    await verdict(world, "customer", **binding("right"))
    same_key = {"privateKeySecretRef": {"name": "customer-account"}, "disableAccountKeyGeneration": True}
    assert (await verdict(world, "imported", **same_key))[1] == "ACMEAccountRegistered"
    issuers = [await world.client.get(CLUSTER_ISSUERS, name) for name in ("customer", "imported")]
    first, second = (issuer.status.acme for issuer in issuers)
    assert first is not None
    assert second is not None
    assert first.uri == second.uri
    # A key without an account.
    _, reason, message = await verdict(world, "new", disableAccountKeyGeneration=False)
    assert (reason, "set spec.acme.externalAccountBinding" in message) == ("ErrRegisterACMEAccount", True)
    unknown = {"privateKeySecretRef": {"name": "new-account"}, "disableAccountKeyGeneration": True}
    assert "set spec.acme.externalAccountBinding" in (await verdict(world, "unknown-key", **unknown))[2]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("acme", "reason", "words"),
    [
        (
            {"server": "https://acme-v01.api.letsencrypt.org/directory"},
            "InvalidConfig",
            "https://acme-v02.api.letsencrypt.org/directory",
        ),
        (
            {"server": "https://127.0.0.1:1/dir"},
            "ErrRegisterACMEAccount",
            "127.0.0.1:1/dir cannot be reached",
        ),
        ({"server": "https://none.invalid/dir"}, "ErrRegisterACMEAccount", "cannot be resolved"),
        ({"server": "{base}/nothing"}, "ErrRegisterACMEAccount", "check the URL in spec.acme.server with"),
        ({"server": "{base}/nonce-plz"}, "ErrRegisterACMEAccount", "instead of an ACME directory"),
        ({"caBundle": ""}, "ErrRegisterACMEAccount", "put its certificate into spec.acme.caBundle"),
        ({"caBundle": "{other}"}, "ErrRegisterACMEAccount", "is not trusted"),
    ],
)
async def test_a_server_that_is_none(world: AcmeWorld, acme: dict[str, str], reason: str, words: str) -> None:
    other = trustme.CA().cert_pem.bytes()
    known = {
        "{base}": world.pebble.directory.removesuffix("/dir"),
        "{other}": base64.b64encode(other).decode(),
    }
    for place, value in known.items():
        acme = {key: text.replace(place, value) for key, text in acme.items()}
    number = sum(ord(letter) for letter in f"{acme}")
    condition = await verdict(world, f"server-{number}", **binding("right"), **acme)
    assert (condition[0], condition[1]) == ("False", reason), condition
    assert words in condition[2], condition


async def test_a_server_whose_tls_certificate_has_expired_is_told() -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    with running_pebble(identity_ends=ended) as pebble:
        async with acme_world(pebble) as world:
            status, reason, message = await verdict(world, "expired")
    assert (status, reason) == ("False", "ErrRegisterACMEAccount")
    assert "is not trusted: certificate has expired; have the server's certificate renewed" in message


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"other": b"x"}, 'holds no account key under "tls.key"; put the key there, or delete the Secret'),
        ({"tls.key": b"no key"}, 'the account key in Secret "given-'),
    ],
)
async def test_an_account_key_that_is_none(world: AcmeWorld, data: dict[str, bytes], words: str) -> None:
    name = f"given-{len(words)}"
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await world.create(SECRETS, {"metadata": {"name": name, "namespace": "kube-system"}, "data": encoded})
    condition = await verdict(world, name, **binding("right"), privateKeySecretRef={"name": name})
    assert condition[1] == "ErrVerifyACMEAccount"
    assert words in condition[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_no_key_is_made_where_that_is_forbidden(world: AcmeWorld) -> None:
    condition = await verdict(world, "forbidden", **binding("right"), disableAccountKeyGeneration=True)
    assert condition[1] == "ErrVerifyACMEAccount"
    assert "'disableAccountKeyGeneration' set to true" in condition[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_another_account_key_is_another_account_and_another_address_is_told(world: AcmeWorld) -> None:
    await verdict(world, "moving", **binding("right"))
    first = (await world.client.get(CLUSTER_ISSUERS, "moving")).status.acme
    await verdict(world, "elsewhere", **binding("right"))
    other = await world.client.get(SECRETS, "elsewhere-account", "kube-system")
    await world.client.patch(
        SECRETS,
        "moving-account",
        "kube-system",
        {"data": {"tls.key": base64.b64encode(other.data["tls.key"]).decode()}},
    )
    assert first is not None
    moved = await world.until(
        CLUSTER_ISSUERS, "moving", lambda i: i.status.acme is not None and i.status.acme.uri != first.uri
    )
    assert conditions.is_true(moved.status.conditions, "Ready")
    patch = {"spec": {"acme": {"email": "other@example.org"}}}
    await world.client.patch(CLUSTER_ISSUERS, "moving", "", patch)
    issuer = await world.until(
        CLUSTER_ISSUERS,
        "moving",
        lambda i: i.status.acme is not None and i.status.acme.last_registered_email == "other@example.org",
    )
    assert issuer.status.acme is not None
    assert moved.status.acme is not None
    assert issuer.status.acme.uri == moved.status.acme.uri


async def test_a_server_that_has_forgotten_the_account_gets_it_again(fake: FakeWorld) -> None:
    fake.ca.accounts.clear()
    await fake.issue("web", after=timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    assert (await fake.ready_of())[0] == "True"
    assert len(fake.ca.accounts) == 1


async def test_the_label_is_put_back_on_an_account_key_of_ours(fake: FakeWorld) -> None:
    client = fake.world.client
    made = await client.get(SECRETS, "acme-account", "kube-system")
    assert made.metadata.labels[names.FAO_LABEL] == "true"
    assert made.metadata.labels["app.kubernetes.io/managed-by"] == "cert-manager"
    patch = {"metadata": {"labels": {names.FAO_LABEL: None}}}
    await client.patch(SECRETS, "acme-account", "kube-system", patch)
    await fake.world.settle()
    mended = await client.get(SECRETS, "acme-account", "kube-system")
    assert mended.metadata.labels[names.FAO_LABEL] == "true"
    assert mended.data == made.data


async def test_a_server_that_is_away_is_asked_again(bare: FakeWorld) -> None:
    bare.ca.lose(Action.DIRECTORY, after=False, times=3)
    await bare.issuer()
    status, reason, message = await bare.ready_of()
    assert (status, reason) == ("False", "ErrRegisterACMEAccount")
    assert "the line is cut" in message
    await bare.world.advance(timedelta(minutes=5))
    assert (await bare.ready_of())[0] == "True"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"emailAddresses": ["a@example.org"]},
            "ACME proves DNS names and IP addresses only, not a@example.org",
        ),
        (
            {"commonName": "elsewhere.example.org"},
            '"elsewhere.example.org" does not exist in [a.example.org]',
        ),
    ],
)
async def test_what_acme_cannot_prove_is_not_ordered(
    fake: FakeWorld, spec: dict[str, Any], words: str
) -> None:
    await fake.issue("web", **spec)
    assert words in await fake.message_of()
    assert fake.ca.orders == {}


async def test_a_name_without_a_solver_waits_for_one(bare: FakeWorld) -> None:
    await bare.issuer(
        solvers=[{"dns01": {"rfc2136": {"nameserver": "192.0.2.1"}}, "selector": {"dnsZones": ["x.net"]}}]
    )
    await bare.issue("web")
    assert (
        "no solver of the issuer fits a.example.org, for which the server offers http-01, dns-01, "
        "tls-alpn-01; add one to spec.acme.solvers, or widen its selector"
    ) in (await bare.requests())[0].status.conditions[-1].message
    solvers = [{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}]
    await bare.world.client.patch(CLUSTER_ISSUERS, "acme", "", {"spec": {"acme": {"solvers": solvers}}})
    await bare.world.advance(timedelta(minutes=1))
    assert await bare.world.is_ready("web")
    assert len(bare.ca.orders) == 1


async def test_nothing_that_listens_is_told(bare: FakeWorld) -> None:
    bare.options = {"responder": None}
    await bare.start()
    await bare.issuer()
    await bare.issue("web")
    message = (await bare.requests())[0].status.conditions[-1].message
    assert "no HTTP-01 listener is running; start certwright with --http01-listen :80" in message


async def test_an_issuer_stays_ready_though_its_profile_is_not_offered_and_its_requests_fail(
    bare: FakeWorld,
) -> None:
    bare.ca.meta = {"profiles": {"classic": "for servers"}}
    await bare.issuer(profile="longlived")
    why = (
        "certificate authority does not advertise a profile with name longlived (it has classic); "
        "change or remove spec.acme.profile"
    )
    status, reason, message = await bare.ready_of()
    assert (status, reason) == ("True", "ACMEAccountRegistered")
    assert message == f"The ACME account was registered with the ACME server; but the {why}"
    await bare.issue("web", after=timedelta(minutes=1))
    (order,) = await bare.orders()
    # In cert-manager's words.
    assert (order.status.state, order.status.reason) == (
        "errored",
        f"Failed to create Order: acme: {why}",
    )
    assert order.status.reason in await bare.message_of()
    assert bare.ca.counted()[Action.NEW_ORDER] == 0
    # The CA offers it by now.
    bare.ca.meta = {"profiles": {"classic": "for servers", "longlived": "for others"}}
    await bare.world.advance(timedelta(hours=2))
    assert await bare.world.is_ready("web")
