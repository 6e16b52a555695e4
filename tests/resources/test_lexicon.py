"""Which options of dns-lexicon an object may set."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from certwright.resources import lexicon
from certwright.resources.lexicon import option_problem
from certwright.resources.names import GROUP
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.validation import validate
from support.real import require_package

# Every option of dns-lexicon 3.25 that names a server, a file, a profile of the machine or an identity of it,
# or that is of no use for a TXT record.
OF_THE_OPERATOR = {
    "api_endpoint",
    "auth_config_file",
    "auth_profile",
    "auth_server",
    "auth_type",
    "ddns_server",
    "domain",
    "endpoint",
    "filename",
    "ib_host",
    "ib_port",
    "ib_weight",
    "pdns-disable-notify",
    "pdns_server",
    "plesk_server",
    "port",
    "retry_wait_time",
    "weight",
}


def rejection_of(dns01: Mapping[str, object], policy: OperatorPolicy | None = None) -> str:
    """What admission says of an Issuer with this solver."""
    acme = {
        "server": "https://ca.example/dir",
        "privateKeySecretRef": {"name": "account"},
        "solvers": [{"dns01": dns01}],
    }
    new = {"metadata": {"name": "i", "namespace": "default"}, "spec": {"acme": acme}}
    return "\n".join(map(str, validate("Issuer", GROUP, new, None, policy)))


def test_each_option_of_the_library_is_known_to_be_safe_or_the_operators() -> None:
    require_package("lexicon")
    spec = find_spec("lexicon")
    assert spec is not None
    assert spec.submodule_search_locations
    names: set[str] = set()
    for path in (Path(spec.submodule_search_locations[0]) / "_private" / "providers").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="_get_provider_option"), args=[ast.Constant(str(name))]
                ):
                    names.add(name)
    safe = {name for name in names if not option_problem("p", name, "value")}
    assert names - safe == OF_THE_OPERATOR
    assert len(safe) > 40


@pytest.mark.parametrize("name", [*sorted(OF_THE_OPERATOR), "new_in_a_later_version"])
def test_options_of_the_operator_name_the_flag(name: str) -> None:
    field = f"spec.acme.solvers[0].dns01.lexicon.options.{name}"
    message = rejection_of({"lexicon": {"provider": "p", "options": {name: "value"}}})
    assert f"{field}: Forbidden: only the operator may set this option" in message
    assert f"--dns01-lexicon-option p.{name}=VALUE" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auth_service_account_info", "file::/etc/passwd"),
        ("auth_token", "file::/etc/passwd"),
        ("auth_token", "two\nlines"),
        ("auth_region", "evil.example/#"),
        ("auth_region", "evil.example"),
        ("auth_entrypoint", "https://evil.example"),
        ("pdns_server_id", "../../../admin"),
        ("zone_id", "a/b"),
        ("zone_id", "a?b"),
        ("zone_id", ""),
        ("resource_group", "a%2fb"),
    ],
)
def test_values_that_reach_elsewhere(name: str, value: str) -> None:
    problem = option_problem("p", name, value)
    assert problem
    assert not value or value not in problem


def test_a_provider_needs_the_operators_flag() -> None:
    spec = {"lexicon": {"provider": "hetzner", "credentialsSecretRef": {"name": "dns"}}}
    assert rejection_of(spec, OperatorPolicy(lexicon_providers=("hetzner",))) == ""
    message = rejection_of(spec, OperatorPolicy(lexicon_providers=("ovh",)))
    assert "dns01.lexicon.provider" in message
    assert "(allowed: ovh); have certwright started with --dns01-lexicon hetzner" in message


def test_a_plugin_needs_the_operators_flag() -> None:
    spec = {"plugin": {"name": "mine", "secretRefs": {"token": {"name": "dns", "key": "token"}}}}
    assert rejection_of(spec, OperatorPolicy(plugins=("mine",))) == ""
    message = rejection_of(spec, OperatorPolicy())
    assert "dns01.plugin.name" in message
    assert "--dns01-plugin mine" in message


@pytest.mark.parametrize("name", lexicon.FORBIDDEN_PROVIDERS)
def test_two_providers_are_never_allowed(name: str) -> None:
    allowed = OperatorPolicy(lexicon_providers=(name,))
    assert f"{name} cannot be used: it" in rejection_of({"lexicon": {"provider": name}}, allowed)


def test_missing_fields_are_named() -> None:
    path = "spec.acme.solvers[0].dns01"
    assert f"{path}.lexicon.provider: Required" in rejection_of({"lexicon": {"provider": ""}})
    assert f"{path}.plugin.name: Required" in rejection_of({"plugin": {"name": ""}})
    refs = {"plugin": {"name": "p", "secretRefs": {"token": {"name": "s"}}}}
    assert f"{path}.plugin.secretRefs.token.key: Required" in rejection_of(refs)
    nameless = {"lexicon": {"provider": "p", "credentialsSecretRef": {"name": ""}}}
    assert f"{path}.lexicon.credentialsSecretRef.name" in rejection_of(nameless)
    both = {"lexicon": {"provider": "p"}, "plugin": {"name": "p"}}
    assert "exactly one of" in rejection_of(both)
