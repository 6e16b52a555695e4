"""Settings of `dns01.lexicon` and `dns01.plugin`: from manifests, Secrets and the operator's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts.in_child import ChildSettings
from certwright.controllers.acme.dns_hosts import HOSTS, HostValues, host_of, settings_of
from certwright.resources.references import secret_names
from certwright.resources.solver import DNS01Solver

SECRET = "a-secret-value"
LEXICON = {
    "lexicon": {
        "provider": "powerdns",
        "credentialsSecretRef": {"name": "dns"},
        "options": {"pdns_server_id": "main", "ttl": "300"},
    }
}
PLUGIN = {
    "plugin": {
        "name": "mine",
        "config": {"b": 1, "a": [True]},
        "secretRefs": {"token": {"name": "dns", "key": "auth_token"}},
    }
}


async def made(
    solver: Mapping[str, Any],
    data: Mapping[str, bytes] | None,
    *,
    operator: Mapping[str, str] | None = None,
) -> ChildSettings:
    """The settings, with this content of the Secret `dns`."""

    async def get_secret(name: str) -> Mapping[str, bytes] | None:
        assert name == "dns"
        return data

    spec = msgspec.convert(solver, DNS01Solver)
    field = host_of(spec)
    values = HostValues(
        path=f"dns01.{HOSTS[field]}", get_secret=get_secret, lexicon_options={"powerdns": operator or {}}
    )
    settings = await settings_of(spec, field, values)
    assert isinstance(settings, ChildSettings)
    return settings


def provider_of(settings: ChildSettings) -> Provider:
    return msgspec.json.decode(settings.provider, type=Provider)


@pytest.mark.parametrize("solver", [LEXICON, PLUGIN], ids=["lexicon", "plugin"])
async def test_settings_are_values_that_show_no_secret(solver: dict[str, Any]) -> None:
    data = {"auth_token": SECRET.encode()}
    first, second = await made(solver, data), await made(solver, data)
    assert first == second
    assert hash(first) == hash(second)
    assert SECRET not in repr(first)
    assert first != await made(solver, {"auth_token": b"another"})
    assert secret_names(msgspec.convert(solver, DNS01Solver)) == {"dns"}


@pytest.mark.parametrize("solver", [LEXICON, PLUGIN], ids=["lexicon", "plugin"])
async def test_a_missing_secret_is_named(solver: dict[str, Any]) -> None:
    with pytest.raises(
        SolverError, match=r'^dns01\.\w+\.\w+Refs?[.\w]*: Secret "dns" does not exist; create it$'
    ):
        await made(solver, None)


async def test_options_of_the_secret_and_of_the_operator_are_passed() -> None:
    data = {"auth_token": b"a-secret-value\n"}
    operator = {"pdns_server": "https://dns", "pdns_server_id": "localhost"}
    settings = await made(LEXICON, data, operator=operator)
    assert provider_of(settings) == Provider(
        kind="lexicon",
        name="powerdns",
        options={"ttl": "300", "auth_token": SECRET, **operator},
        servers=("https://dns",),
    )


async def test_a_secret_sets_no_option_of_the_operator() -> None:
    data = {"auth_token": SECRET.encode(), "pdns_server": b"http://169.254.169.254/"}
    with pytest.raises(
        SolverError, match=r'entry "pdns_server" of Secret "dns": only the operator'
    ) as caught:
        await made(LEXICON, data)
    assert "169.254" not in str(caught.value)
    with pytest.raises(SolverError, match=r'entry "auth_key" of Secret "dns": must not begin with file::'):
        await made(LEXICON, {"auth_key": b" file::/etc/passwd"})


async def test_options_that_were_stored_without_validation_are_refused() -> None:
    solver = {"lexicon": {"provider": "powerdns", "options": {"pdns_server": "http://internal"}}}
    with pytest.raises(SolverError, match=r"dns01\.lexicon\.options\.pdns_server: only the operator may set"):
        await made(solver, {})


async def test_a_plugin_is_passed_its_configuration_and_bytes() -> None:
    settings = await made(PLUGIN, {"auth_token": b"\xff\x00binary"})
    assert provider_of(settings) == Provider(
        kind="plugin", name="mine", config={"b": 1, "a": [True]}, secrets={"token": b"\xff\x00binary"}
    )
