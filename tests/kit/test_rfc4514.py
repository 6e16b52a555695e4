"""Distinguished names as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kit.rfc4514 import Attribute, escape, parse


def pairs(text: str) -> list[list[tuple[str, str]]]:
    return [[(attribute.type, attribute.value) for attribute in rdn] for rdn in parse(text)]


# The examples of RFC 4514 §4.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UID=jsmith,DC=example,DC=net", [[("UID", "jsmith")], [("DC", "example")], [("DC", "net")]]),
        (
            "OU=Sales+CN=J.  Smith,DC=example,DC=net",
            [[("OU", "Sales"), ("CN", "J.  Smith")], [("DC", "example")], [("DC", "net")]],
        ),
        (
            'CN=James \\"Jim\\" Smith\\, III,DC=example,DC=net',
            [[("CN", 'James "Jim" Smith, III')], [("DC", "example")], [("DC", "net")]],
        ),
        ("CN=Before\\0dAfter", [[("CN", "Before\rAfter")]]),
        ("CN=Lu\\C4\\8Di\\C4\\87", [[("CN", "Lučić")]]),
    ],
)
def test_the_examples_of_the_rfc_are_read(text: str, expected: list[list[tuple[str, str]]]) -> None:
    assert pairs(text) == expected


def test_a_value_in_hexadecimal_is_given_as_bytes() -> None:
    assert parse("1.3.6.1.4.1.1466.0=#04024869, O=x") == (
        (Attribute("1.3.6.1.4.1.1466.0", "", bytes.fromhex("04024869")),),
        (Attribute("O", "x"),),
    )


def test_blanks_around_separators_are_ignored_and_escaped_ones_kept() -> None:
    assert pairs(" CN = a b ; O = \\ c\\  ") == [[("CN", "a b")], [("O", " c ")]]


def test_empty_text_is_the_empty_name() -> None:
    assert parse("") == () == parse("  ")


@pytest.mark.parametrize(
    "text", ["CN", "CN=a,", ",", "=a", "CN=a\\", 'CN="a"', "CN=\\zz", "CN=\\ff", "CN=a<b"]
)
def test_what_is_no_name_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"character \d+|not UTF-8"):
        parse(text)


def test_a_name_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        parse("CN=" + "a" * 20_000)


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_any_value_survives_escaping(value: str) -> None:
    assert pairs(f"CN={escape(value)},O={escape(value)}") == [[("CN", value)], [("O", value)]]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ValueError:
        return
