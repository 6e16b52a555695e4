"""`--dns01-lexicon`, `--dns01-lexicon-option` and `--dns01-plugin`: mistakes are named at start."""

from __future__ import annotations

import click
import pytest

from certwright.cli import policy_flags
from support.real import require_package


def commands() -> dict[str, click.Command]:
    """A command for each option, with no other."""

    def nothing(**_: object) -> None: ...

    decorated = [click.command()(option(nothing)) for option in policy_flags.OPTIONS]
    return {command.params[-1].opts[0]: command for command in decorated}


def refusal(option: str, *values: str) -> str:
    """What is wrong with these values of an option; empty: nothing."""
    words = [word for value in values for word in (option, value)]
    try:
        commands()[option].main(words, standalone_mode=False)
    except click.BadParameter as error:
        return error.message
    return ""


def test_a_plugin_that_is_not_installed() -> None:
    assert refusal("--dns01-plugin", "missing").startswith(
        "no installed package provides the plug-in `missing`"
    )


def test_providers_of_lexicon() -> None:
    require_package("lexicon")
    assert refusal("--dns01-lexicon", "hetzner, ovh", "powerdns") == ""
    assert "dns-lexicon has no provider `nope`" in refusal("--dns01-lexicon", "hetzner,nope")
    assert "`localzone` cannot be used" in refusal("--dns01-lexicon", "localzone")


def test_lexicon_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certwright.acme.solvers.dns01.installed.find_spec", lambda _name: None)
    message = refusal("--dns01-lexicon", "hetzner")
    assert message == "dns-lexicon is not installed; run `pip install 'certwright[lexicon]'`"


def test_an_option_without_a_value_is_not_quoted() -> None:
    assert refusal("--dns01-lexicon-option", "powerdns.pdns_server=https://dns.example") == ""
    for wrong in ("powerdns", "powerdns=x", "powerdns.=secret-value", ".x=secret-value"):
        message = refusal("--dns01-lexicon-option", wrong)
        assert "write PROVIDER.OPTION=VALUE" in message
        assert "secret-value" not in message
