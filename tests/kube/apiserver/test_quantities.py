"""Quantities as Kubernetes writes them; the pairs were made by apimachinery's own `Quantity`."""

from __future__ import annotations

import pytest

from certwright.kube.apiserver.cel import functions
from certwright.kube.apiserver.kinds.native_scalars import canonical
from kube.apiserver.callers import Api


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("0", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("100Mi", "100Mi"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("1E3", "1E3"),
        ("00012", "00012"),
        ("-1000m", "-1"),
        ("0.1n", "1n"),
        ("1.23456789012n", "2n"),
        ("8Ei", "9223372036854775807"),
        ("1e-30", "1e-9"),
        ("1000000000000000000000", "1"),
        ("9.352P", "9.352P"),
        ("m", "0"),
    ],
)
def test_a_quantity_is_written_as_go_writes_it(given: str, written: str) -> None:
    assert canonical(given) == written
    assert canonical(written) is not None


@pytest.mark.parametrize("text", ["", "x", "1 ", "1Kii", "1ki", "1_000", "1e", "--1", "1.2.3"])
def test_what_is_no_quantity_is_told(text: str) -> None:
    assert canonical(text) is None


@pytest.mark.parametrize("text", [digit * 10**6 + end for digit in "1." for end in ("", "0!")])
def test_a_text_of_a_million_digits_is_no_quantity(text: str) -> None:
    """A backtracking pattern would take hours."""
    assert canonical(text) is None
    assert not functions._is_quantity(text)


async def test_quantities_of_built_in_kinds_are_written_anew(api: Api) -> None:
    manifest = {"metadata": {"name": "a"}, "spec": {"hard": {"cpu": "1000m", "memory": "1024Ki", "pods": 3}}}
    made = await api.ok("POST", "/api/v1/namespaces/default/resourcequotas", manifest)
    assert made["spec"]["hard"] == {"cpu": "1", "memory": "1Mi", "pods": "3"}
