"""Names are compared as DNS does: in the order, the authorizations, the certificate and the spec."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.kube.api import conditions
from certwright.pki.certificates import read_certificate
from certwright.pki.sans import canonical_dns_name
from controllers.acme.fake_world import FakeWorld


@pytest.mark.parametrize(
    "names",
    [
        ["App.Example.COM"],
        ["a.example.com", "A.Example.com"],
        ["Bücher.example", "XN--BCHER-KVA.example"],
    ],
)
async def test_names_in_capital_letters_are_issued_with_one_order(fake: FakeWorld, names: list[str]) -> None:
    await fake.issue("web", *names, after=timedelta(minutes=1))
    assert await fake.world.is_ready("web"), await fake.message_of()
    assert (await fake.certificate()).spec.dns_names == tuple(names)
    leaf = read_certificate((await fake.world.secret("web")).data["tls.crt"])
    assert all(name == name.lower() for name in leaf.dns_names)
    await fake.start()
    await fake.world.advance(timedelta(days=20))
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    assert await fake.world.is_ready("web")


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("App.Example.COM", "app.example.com"),
        ("app.example.com.", "app.example.com"),
        ("*.Example.org", "*.example.org"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.Example", "xn--bcher-kva.example"),
        ("_Srv.example.org", "_srv.example.org"),
    ],
)
def test_one_form_is_compared(name: str, canonical: str) -> None:
    assert canonical_dns_name(name) == canonical


@pytest.mark.parametrize("name", ["a.example.org.", "_x.example.org", "*.*.example.org", "a.*.example.org"])
async def test_a_name_that_cannot_be_ordered_asks_for_another_spec(fake: FakeWorld, name: str) -> None:
    await fake.issue("web", name, after=timedelta(minutes=1))
    issuing = conditions.find((await fake.certificate()).status.conditions, "Issuing")
    assert issuing is not None
    assert (issuing.status, issuing.reason) == ("False", "InvalidRequest")
    assert "change spec.dnsNames" in issuing.message


async def test_a_common_name_in_capital_letters_is_one_of_the_names(fake: FakeWorld) -> None:
    await fake.issue("web", "app.example.com", commonName="App.Example.com", after=timedelta(minutes=1))
    assert await fake.world.is_ready("web"), await fake.message_of()
