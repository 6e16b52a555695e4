"""Nothing foreign leaves this room, whatever bytes come in."""

from __future__ import annotations

import ast
import base64
import re
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.pki import certificates, chain, csr, errors, keys, signing
from certwright.pki.errors import BadCsr, BadKey, BadName, PkiError, border
from certwright.pki.names import Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = [keys.generate(keys.KeyPlan.of(algorithm)) for algorithm in ("RSA", "ECDSA", "Ed25519", "ML-DSA")]
PLAN = csr.CsrPlan(
    common_name="Root",
    subject=Subject(countries=("DE",), organizations=("A", "B")),
    dns_names=("a.example", "*.b.example"),
    ip_addresses=("10.0.0.1", "::1"),
    uris=("spiffe://a/b",),
    email_addresses=("a@example.com",),
    other_names=(OtherName("1.2.3", "x"),),
    is_ca=True,
    usages=("server auth", "crl sign"),
    name_constraints=NameConstraints(permitted=NameSet(dns_domains=("a",), ip_ranges=("10.0.0.0/8",))),
)
CSRS = [csr.build_csr(PLAN, key) for key in KEYS]
CERTIFICATES = [
    signing.self_sign(
        pem, key=key, duration=timedelta(days=9), is_ca=True, usages=PLAN.usages, now=NOW
    )
    for pem, key in zip(CSRS, KEYS, strict=True)
]  # fmt: skip
SEEDS = [*CSRS, *CERTIFICATES, *(keys.encode_private_key(key, e) for key in KEYS for e in ("PKCS1", "PKCS8"))]


def use_everything(pem: bytes) -> None:
    """Read `pem` as everything, and go on with what could be read as far as it goes."""
    for read in (use_key, use_csr, use_chain):
        try:
            read(pem)
        except PkiError as error:
            sentence = str(error)
            assert sentence, "an error without a sentence"


def use_key(pem: bytes) -> None:
    key = keys.load_private_key(pem)
    csr.build_csr(csr.CsrPlan(common_name="a"), key)


def use_csr(pem: bytes) -> None:
    facts = csr.read_csr(pem)
    assert isinstance(facts.subject_text, str)
    assert isinstance(repr(facts), str)
    ca = certificates.read_certificate(CERTIFICATES[1])
    signing.sign(
        pem, ca_cert=ca, ca_key=KEYS[1], duration=timedelta(days=1), is_ca=True, usages=PLAN.usages, now=NOW
    )


def use_chain(pem: bytes) -> None:
    ordered = certificates.read_chain(pem)
    assert isinstance(ordered[0].subject_text, str)
    assert isinstance(ordered[0].pem, bytes)
    assert isinstance(ordered[0].issuer_text, str)
    chain.bundle(ordered)
    signing.sign(
        CSRS[1],
        ca_cert=ordered[0],
        ca_key=KEYS[1],
        duration=timedelta(days=1),
        is_ca=True,
        usages=PLAN.usages,
        now=NOW,
    )


def with_changed_bytes(pem: bytes, changes: list[tuple[int, int]]) -> bytes:
    """The same PEM around DER in which some bytes are different."""
    match = re.search(rb"(-----BEGIN [A-Z0-9 ]+-----\n)(.*?)(-----END)", pem, re.S)
    assert match
    der = bytearray(base64.b64decode(match[2]))
    for at, value in changes:
        der[at % len(der)] = value
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64)).encode() + b"\n"
    return pem[: match.start(2)] + body + pem[match.end(2) :]


CHANGES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=3)


@given(st.sampled_from(SEEDS), CHANGES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_der_with_changed_bytes_ends_in_our_own_errors(pem: bytes, changes: list[tuple[int, int]]) -> None:
    use_everything(with_changed_bytes(pem, changes))


@given(st.sampled_from(SEEDS), st.integers(0, 4000), st.binary(max_size=8), st.integers(0, 40))
def test_pem_with_changed_characters_ends_in_our_own_errors(
    pem: bytes, at: int, inserted: bytes, dropped: int
) -> None:
    at %= len(pem)
    use_everything(pem[:at] + inserted + pem[at + dropped :])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_our_own_errors(garbage: bytes) -> None:
    use_everything(garbage)
    use_everything(b"-----BEGIN CERTIFICATE-----\n" + garbage + b"\n-----END CERTIFICATE-----\n")


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


class PanicException(BaseException):
    """As the Rust half of `cryptography` raises it."""

    __module__ = "pyo3_runtime"


@pytest.mark.parametrize(
    "foreign", [kind("<why>") for kind in (ValueError, TypeError, OverflowError, KeyError, PanicException)]
)
def test_the_border_converts(foreign: BaseException) -> None:
    with pytest.raises(BadCsr, match="a sentence") as caught, border(BadCsr, "a sentence"):
        raising(foreign)()
    assert str(foreign) not in str(caught.value)
    with pytest.raises(BadCsr, match="a sentence: "), border(BadCsr, "a sentence", detail=True):
        raising(foreign)()


def test_advice_for_programmers_is_left_out() -> None:
    with pytest.raises(BadCsr) as caught, border(BadCsr, "not a request", detail=True):
        raise ValueError("Unable to load. See https://example.com/faq/#x for more details. MalformedFraming")
    assert str(caught.value) == "not a request: Unable to load. MalformedFraming"


def test_the_border_lets_our_own_errors_and_the_end_of_the_program_pass() -> None:
    with pytest.raises(BadCsr, match="a sentence: mine"), border(BadCsr, "a sentence", detail=True):
        raising(BadKey("mine"))()
    with pytest.raises(BadKey, match="mine"), border(BadName, "a sentence"):
        raising(BadKey("mine"))()
    with pytest.raises(KeyboardInterrupt), border(BadCsr, "a sentence"):
        raising(KeyboardInterrupt())()


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    module = ast.parse(Path(errors.__file__).read_text())
    drawn = set(re.findall(r"\b(?:PkiError|Bad\w+|CannotSign)\b", ast.get_docstring(module) or ""))
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    real = {name for name, kind in kinds.items() if issubclass(kind, Exception)}
    assert drawn == real
