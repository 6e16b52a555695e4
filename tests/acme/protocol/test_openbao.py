"""The protocol against OpenBao's ACME server, which is HashiCorp Vault's."""

from __future__ import annotations

from datetime import UTC, datetime

from acme.protocol.clients import new_key
from certwright.acme.protocol import account
from certwright.acme.protocol.account import ExternalAccount
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import read_mac_key
from certwright.acme.protocol.messages import TlsOptions
from support.openbao import acme_directory, openbao


async def test_an_account_is_bound_to_an_external_one() -> None:
    with openbao() as bao:
        directory = acme_directory(bao, "")
        bao.call("POST", "pki/config/acme", {"enabled": True, "eab_policy": "always-required"})
        bound = bao.call("POST", "pki/acme/new-eab", {})["data"]
        external = ExternalAccount(bound["id"], read_mac_key(bound["key"].encode()))

        def now() -> datetime:
            return datetime.now(UTC)

        transport = HttpTransport(TlsOptions(bao.ca_pem), user_agent="certwright/test", now=now)
        client = AcmeClient(directory, new_key(), transport, now=now)
        try:
            made = await client.run(account.register, [], external=external)
        finally:
            await client.close()
        assert made.is_usable
