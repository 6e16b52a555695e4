"""PEM as the bytes that it stands for: what comes back is what was given."""

from __future__ import annotations

import base64
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.pki import pem
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, encode_private_key, generate

BLOCK = st.tuples(st.sampled_from((b"CERTIFICATE", b"EC PRIVATE KEY", b"")), st.binary(max_size=300))


def text_of(content: bytes, label: str = "CERTIFICATE") -> bytes:
    body = "\n".join(textwrap.wrap(base64.b64encode(content).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n".encode()


GOOD = text_of(b"x" * 70)


@given(st.lists(BLOCK, max_size=4))
def test_blocks_are_those_that_were_joined(blocks: list[pem.Block]) -> None:
    assert pem.blocks(pem.join(blocks)) == blocks


def test_it_is_the_form_in_which_keys_and_requests_are_written() -> None:
    key = generate(KeyPlan.of("ECDSA"))
    for text, label in (
        (encode_private_key(key), b"EC PRIVATE KEY"),
        (build_csr(CsrPlan(dns_names=("web.example.com",)), key), b"CERTIFICATE REQUEST"),
        (GOOD, b"CERTIFICATE"),
    ):
        assert [block_label for block_label, _ in pem.blocks(text)] == [label]
        assert pem.blocks(text + GOOD) == [*pem.blocks(text), *pem.blocks(GOOD)]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"password",
        b"-----BEGIN ",
        b"-----BEGIN CERTIFICATE-----\n",
        GOOD.rstrip(b"\n"),
        GOOD.replace(b"\n", b"\r\n"),
        b"subject=web\n" + GOOD,
        GOOD + b"trailing",
        GOOD[:40] + b"\n" + GOOD[40:],
        GOOD.replace(b"END CERTIFICATE", b"END CERT"),
        GOOD + b"\n" + GOOD,
        text_of(b"x").replace(b"eA==", b"eB=="),
        text_of(b"x").replace(b"eA==", b"eA="),
        text_of(b"xx").replace(b"eHg=", b"e*Hg="),
    ],
)
def test_what_is_not_quite_of_that_form_has_no_blocks(text: bytes) -> None:
    assert pem.blocks(text) == []


@given(st.integers(0, len(GOOD)), st.binary(max_size=3), st.integers(0, 3))
def test_blocks_are_found_only_where_the_very_same_text_can_be_made_of_them(
    at: int, other: bytes, left_out: int
) -> None:
    changed = GOOD[:at] + other + GOOD[at + left_out :]
    blocks = pem.blocks(changed)
    assert blocks == [] or pem.join(blocks) == changed
