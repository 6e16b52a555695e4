"""`--controllers`, and the lists that must name the same steps."""

from __future__ import annotations

import ast
import configparser
import importlib
import re
from pathlib import Path

import pytest

from certwright.controllers import table
from certwright.controllers.certificates import trigger
from certwright.controllers.table import TABLE, parse_enabled

ROOT = Path(__file__).parents[2]
DEFAULT = {name for name in TABLE if not name.startswith("certificatesigningrequests-")}
STEPS = [module for module in TABLE.values() if module.startswith("controllers.certificates.")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", DEFAULT),
        ("", set()),
        ("*,-certificaterequests-approver", DEFAULT - {"certificaterequests-approver"}),
        ("-certificaterequests-approver,*", DEFAULT - {"certificaterequests-approver"}),
        ("issuers, orders", {"issuers", "orders"}),
        ("*,-ingress-shim,-gateway-shim", DEFAULT - {"ingress-shim", "gateway-shim"}),
        ("*,certificatesigningrequests-issuer-ca", DEFAULT | {"certificatesigningrequests-issuer-ca"}),
        ("-issuers", DEFAULT - {"issuers"}),
        ("-issuers,-orders", DEFAULT - {"issuers", "orders"}),
        ("issuers,-issuers", set()),
    ],
)
def test_a_list_stands_for_these_controllers(text: str, names: set[str]) -> None:
    assert parse_enabled(text) == names


@pytest.mark.parametrize("text", ["issuer", "*,-approver", "- issuers", "**"])
def test_an_unknown_controller_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a controller"):
        parse_enabled(text)


def test_a_kind_of_issuer_can_be_left_out() -> None:
    assert table.signer_kinds(parse_enabled("*,-certificaterequests-issuer-ca")) == {
        "selfsigned",
        "acme",
        "vault",
        "venafi",
    }


def test_each_row_leads_to_a_module() -> None:
    for module in filter(None, TABLE.values()):
        importlib.import_module(f"certwright.{module}")


def headed() -> set[str]:
    """The modules that open with the four lines of a step."""
    source = ROOT / "src" / "certwright"
    pairs = set()
    for path in (source / "controllers").rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if re.search(r"^Wakes on:", text, re.M):
            pairs.add(path.relative_to(source).with_suffix("").as_posix().replace("/", "."))
    return pairs


def test_steps_are_named_alike_in_the_table_the_headers_and_the_import_contract() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    listed = {
        name.removeprefix("certwright.")
        for name in contracts["importlinter:contract:steps"]["modules"].split()
    }
    there = {name for name in listed if (ROOT / "src/certwright" / (name.replace(".", "/") + ".py")).exists()}
    assert set(STEPS) <= headed()
    assert headed() == there


def test_the_card_shows_all_steps_and_those_of_the_table_in_its_order() -> None:
    package = trigger.__name__.rpartition(".")[0]
    card = importlib.import_module(package).__doc__ or ""
    rows = re.findall(r"^\| ([a-z_]+) +\|", card, re.M)[1:]
    steps = list(dict.fromkeys(module.rpartition(".")[2] for module in STEPS))
    assert [row for row in rows if row in steps] == steps
    prefix = package.removeprefix("certwright.") + "."
    assert set(rows) >= {name.removeprefix(prefix) for name in headed() if name.startswith(prefix)}
