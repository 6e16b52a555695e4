"""Feature gates as the command line has them."""

from __future__ import annotations

import pytest

from certwright.kube.apiserver.base import features

KNOWN = {"Quick": True, "Careful": False}


def test_gates_are_read_as_the_command_line_has_them() -> None:
    assert features.parse("", KNOWN) == {}
    assert features.parse("Quick=false, Careful=T,", KNOWN) == {"Quick": False, "Careful": True}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Nonsense=true", "unrecognized feature gate: Nonsense; there are Careful, Quick"),
        ("Quick", "missing bool value for feature gate Quick"),
        ("Quick=2", "invalid value of feature gate Quick=2"),
    ],
)
def test_wrong_gates_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        features.parse(text, KNOWN)


def test_a_gate_may_have_two_names() -> None:
    aliases = {"Hasty": "Quick"}
    assert features.parse("Hasty=false", KNOWN, aliases) == {"Quick": False}
    assert features.parse("Quick=false,Hasty=false", KNOWN, aliases) == {"Quick": False}


@pytest.mark.parametrize("text", ["Quick=true,Hasty=false", "Hasty=false,Quick=true"])
def test_two_names_of_a_gate_must_agree(text: str) -> None:
    with pytest.raises(ValueError, match="are two names of one feature gate"):
        features.parse(text, KNOWN, {"Hasty": "Quick"})
