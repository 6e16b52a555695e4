"""The protocol against a real ACME server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from acme.protocol.clients import client_of, new_key
from certwright.acme.protocol import account, challenges, orders
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import (
    AccountTrouble,
    Identifier,
    NotAcme,
    Reaction,
    Refused,
    Unreachable,
    Untrusted,
)
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.messages import Action, TlsOptions
from certwright.acme.protocol.orders import Order
from certwright.pki import keys
from certwright.pki.certificates import certificate_id
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from support.pebble import Pebble, running_pebble


async def prove(client: AcmeClient, pebble: Pebble, order: Order) -> None:
    """Show every dns-01 record that the order asks for, and wait until the server has seen them."""
    for url in order.authorizations:
        authorization = await client.run(orders.fetch_authorization, url)
        if authorization.status == "valid":
            continue  # The server remembers an earlier proof.
        challenge = next(
            challenge for challenge in authorization.challenges if challenge.type == challenges.DNS_01
        )
        shown = challenges.dns_value(challenges.key_authorization(challenge.token, client.key))
        pebble.names.set_txt(challenges.dns_name(authorization.identifier.value), shown)
        await client.run(orders.accept_challenge, challenge.url)
        while authorization.status == "pending":
            await asyncio.sleep(0.02)
            authorization = await client.run(orders.fetch_authorization, url)
        assert authorization.status == "valid", authorization.error


async def issue(
    client: AcmeClient,
    pebble: Pebble,
    *names: str,
    profile: str = "",
    replaces: str = "",
    preferred_chain: str = "",
) -> orders.Download:
    """A certificate for these names."""
    identifiers = [Identifier("dns", name) for name in names]
    order = await client.run(orders.new_order, identifiers, profile=profile, replaces=replaces)
    await prove(client, pebble, order)
    key = keys.generate(keys.KeyPlan.of("ECDSA", 256))
    csr = read_csr(build_csr(CsrPlan(dns_names=names), key)).parsed.public_bytes(Encoding.DER)
    order = await client.run(orders.finalize, order, csr)
    while order.status == "processing":
        await asyncio.sleep(0.02)
        order = await client.run(orders.fetch_order, order.url)
    assert order.status == "valid", order.error
    return await client.run(orders.download, order.certificate, preferred_chain=preferred_chain)


async def test_a_certificate_is_ordered_proven_and_downloaded(client: AcmeClient, pebble: Pebble) -> None:
    issued = await issue(client, pebble, "one.example.org", "*.one.example.org")
    assert set(issued.chain[0].dns_names) == {"one.example.org", "*.one.example.org"}
    assert len(issued.chain) == 3
    assert len(issued.alternates) == 2


async def test_a_warm_account_needs_few_requests(client: AcmeClient, pebble: Pebble) -> None:
    await issue(client, pebble, "few.example.org")
    before = client.calls.copy()
    await issue(client, pebble, "few2.example.org")
    made = client.calls - before
    refused = made[Action.NEW_NONCE]
    # Nonces come with every answer, also with those that refuse one.
    assert refused == 0
    assert made[Action.NEW_ORDER] >= 1
    assert made[Action.DIRECTORY] == made[Action.NEW_ACCOUNT] == 0


async def test_the_preferred_chain_is_chosen_by_its_topmost_issuer(
    client: AcmeClient, pebble: Pebble
) -> None:
    default = await issue(client, pebble, "chain.example.org")
    other = await client.run(orders.download, default.alternates[1])
    name = other.chain[-1].issuer_text.removeprefix("CN=")
    chosen = await issue(client, pebble, "chain.example.org", preferred_chain=name)
    assert chosen.chain[-1].issuer_text == f"CN={name}"
    assert default.chain[-1].issuer_text != f"CN={name}"
    unknown = await issue(client, pebble, "chain.example.org", preferred_chain="Nobody")
    assert unknown.chain[-1].issuer_text == default.chain[-1].issuer_text


async def test_a_profile_is_obeyed_and_an_unknown_one_refused(client: AcmeClient, pebble: Pebble) -> None:
    issued = await issue(client, pebble, "short.example.org", profile="shortlived")
    assert (issued.chain[0].not_after - issued.chain[0].not_before).days < 7
    with pytest.raises(Refused) as refused:
        await issue(client, pebble, "short.example.org", profile="no-such")
    assert refused.value.problem.name == "invalidProfile"
    assert refused.value.reaction is Reaction.ORDER_FAILS


async def test_a_certificate_is_replaced_once(client: AcmeClient, pebble: Pebble) -> None:
    first = await issue(client, pebble, "again.example.org")
    identifier = certificate_id(first.chain[0])
    directory = await client.directory()
    window = await client.drive(orders.fetch_renewal_info(directory, identifier))
    assert first.chain[0].not_before < window.start < window.end < first.chain[0].not_after
    await issue(client, pebble, "again.example.org", replaces=identifier)
    with pytest.raises(Refused) as refused:
        await issue(client, pebble, "again.example.org", replaces=identifier)
    assert refused.value.reaction is Reaction.WITHOUT_REPLACES


async def test_a_wrong_proof_is_told_in_the_servers_words(client: AcmeClient, pebble: Pebble) -> None:
    identifiers = [Identifier("dns", "wrong.example.org")]
    order = await client.run(orders.new_order, identifiers)
    url = order.authorizations[0]
    authorization = await client.run(orders.fetch_authorization, url)
    challenge = next(
        challenge for challenge in authorization.challenges if challenge.type == challenges.DNS_01
    )
    pebble.names.set_txt(challenges.dns_name("wrong.example.org"), "nonsense")
    await client.run(orders.accept_challenge, challenge.url)
    while authorization.status == "pending":
        authorization = await client.run(orders.fetch_authorization, url)
    assert authorization.status == "invalid"
    assert authorization.error is not None
    assert authorization.error.name == "unauthorized"
    order = await client.run(orders.fetch_order, order.url)
    assert order.status == "invalid"


async def test_a_blocked_name_is_refused_for_good(client: AcmeClient) -> None:
    identifiers = [Identifier("dns", "blocked-domain.example")]
    with pytest.raises(Refused) as refused:
        await client.run(orders.new_order, identifiers)
    assert refused.value.problem.name == "rejectedIdentifier"
    assert refused.value.reaction is Reaction.ORDER_FAILS


async def test_a_certificate_is_revoked_by_the_account_and_by_its_own_key(
    client: AcmeClient, pebble: Pebble
) -> None:
    certificate = (await issue(client, pebble, "gone.example.org")).chain[0]
    reason = orders.RevocationReason.SUPERSEDED
    await client.run(orders.revoke, certificate, reason=reason)
    assert pebble.status_of(f"{certificate.parsed.serial_number:x}")["Status"] == "Revoked"
    await client.run(orders.revoke, certificate)


async def test_an_address_can_be_ordered(client: AcmeClient) -> None:
    order = await client.run(orders.new_order, [Identifier("ip", "127.0.0.1")])
    authorization = await client.run(orders.fetch_authorization, order.authorizations[0])
    assert authorization.identifier == Identifier("ip", "127.0.0.1")
    assert {challenge.type for challenge in authorization.challenges} >= {
        challenges.HTTP_01,
        challenges.TLS_ALPN_01,
    }


@pytest.mark.parametrize(
    ("algorithm", "size"), [("RSA", 2048), ("ECDSA", 256), ("ECDSA", 384), ("ECDSA", 521)]
)
async def test_accounts_have_keys_of_every_kind(pebble: Pebble, algorithm: str, size: int) -> None:
    client = client_of(pebble, new_key(algorithm, size))
    made = await client.run(account.register)
    assert made.is_usable
    assert (await client.run(account.find)).url == made.url == client.kid
    await client.close()


async def test_a_key_that_the_server_does_not_take_is_the_accounts_trouble(pebble: Pebble) -> None:
    client = client_of(pebble, new_key("Ed25519"))
    with pytest.raises(AccountTrouble) as refused:
        await client.run(account.register)
    assert refused.value.problem.name == "badSignatureAlgorithm"
    await client.close()


async def test_an_account_gets_other_contacts(client: AcmeClient) -> None:
    changed = await client.run(account.update_contact, ["mailto:other@example.org"])
    assert changed.contact == ("mailto:other@example.org",)


async def test_a_key_without_an_account_is_found_out(pebble: Pebble) -> None:
    client = client_of(pebble)
    with pytest.raises(AccountTrouble) as refused:
        await client.run(account.find)
    assert refused.value.problem.name == "accountDoesNotExist"
    await client.close()


async def test_an_account_is_bound_to_the_customers() -> None:
    mac_key = b"0123456789abcdef0123456789abcdef"
    known = {"kid-1": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}
    with running_pebble(externalAccountBindingRequired=True, externalAccountMACKeys=known) as pebble:
        client = client_of(pebble)
        assert (await client.directory()).external_account_required
        with pytest.raises(AccountTrouble) as refused:
            await client.run(account.register)
        assert refused.value.problem.name == "externalAccountRequired"
        for wrong in (account.ExternalAccount("kid-1", b"x" * 32), account.ExternalAccount("no", mac_key)):
            with pytest.raises(Refused):
                await client.run(account.register, external=wrong)
        right = account.ExternalAccount("kid-1", mac_key)
        assert (await client.run(account.register, external=right)).is_usable
        await client.close()


async def test_wrong_addresses_are_told_apart(pebble: Pebble) -> None:
    def client(url: str, bundle: bytes = pebble.ca_bundle) -> AcmeClient:
        transport = HttpTransport(TlsOptions(bundle), user_agent="t", now=_now, timeout_s=200.0)
        return AcmeClient(url, new_key(), transport, now=_now)

    cases = (
        (client(pebble.directory, b""), Untrusted, "is not trusted"),
        (client("https://127.0.0.1:1/dir"), Unreachable, "cannot be reached"),
        (client("https://no-such-name.invalid/dir"), Unreachable, "cannot be resolved"),
        (client("localhost"), NotAcme, "not a URL"),
        (client(pebble.directory.replace("/dir", "/nonce-plz")), NotAcme, "instead of an ACME directory"),
    )
    for asked, kind, words in cases:
        with pytest.raises(kind, match=words):
            await asked.directory()
        await asked.close()


def _now() -> datetime:
    return datetime.now(UTC)
