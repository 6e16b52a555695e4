"""The protocol against a real ACME server."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from acme.protocol.clients import client_of, new_key
from certwright.acme.protocol import account, challenges, orders
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import (
    AccountTrouble,
    Identifier,
    Reaction,
    Refused,
)
from certwright.acme.protocol.orders import Order
from certwright.pki import keys
from certwright.pki.certificates import certificate_id
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from support.pebble import Pebble


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


async def test_a_certificate_is_revoked_by_the_account_and_by_its_own_key(
    client: AcmeClient, pebble: Pebble
) -> None:
    certificate = (await issue(client, pebble, "gone.example.org")).chain[0]
    reason = orders.RevocationReason.SUPERSEDED
    await client.run(orders.revoke, certificate, reason=reason)
    assert pebble.status_of(f"{certificate.parsed.serial_number:x}")["Status"] == "Revoked"
    await client.run(orders.revoke, certificate)


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


async def test_a_key_without_an_account_is_found_out(pebble: Pebble) -> None:
    client = client_of(pebble)
    with pytest.raises(AccountTrouble) as refused:
        await client.run(account.find)
    assert refused.value.problem.name == "accountDoesNotExist"
    await client.close()
