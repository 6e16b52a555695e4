"""Readers of bytes that others send: whatever comes, one of their own errors, in a number of steps that the
bytes limit."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import dns.exception
import dns.message
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.acme.solvers.datagrams import parse_response
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.tlsalpn01 import ClientHelloReader, NotTls
from certwright.kube.api.errors import ApiError
from certwright.kube.apiserver.admission.review import BadReview
from certwright.kube.apiserver.admission.review import read_answer as read_review
from certwright.kube.apiserver.admission.webhooks import apply_patch
from certwright.kube.apiserver.requests.selectors import _TOKEN
from certwright.kube.apiserver.webhooks.config import compile_configuration
from certwright.kube.client import kubeconfig_file
from certwright.kube.store.etcd import messages
from certwright.pki import chain, csr, jks, keys, keystores, limits, pem, pkcs12
from certwright.pki.certificates import read_answer, read_chain, read_der
from certwright.pki.errors import PkiError
from certwright.pki.signing import self_sign

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = keys.generate(keys.KeyPlan.of("ECDSA"))
REQUEST = csr.build_csr(csr.CsrPlan(common_name="web", dns_names=("web.example.com",), is_ca=True), KEY)
CERTIFICATE = self_sign(REQUEST, key=KEY, duration=timedelta(days=1), is_ca=True, usages=(), now=NOW)
CONTENTS = keystores.Contents(keys.encode_private_key(KEY), CERTIFICATE, CERTIFICATE, "changeit")
QUERY = dns.message.make_query("a.example.com", "TXT", use_edns=False)
RESPONSE = dns.message.make_response(QUERY)
RESPONSE.answer.append(dns.rrset.from_text("a.example.com.", 60, "IN", "TXT", '"value"', '"another"'))


class Reader(NamedTuple):
    """A function, the errors that it may raise, and bytes that it reads without one."""

    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    good: bytes


CONFIGURATION = {
    "metadata": {"name": "c"},
    "webhooks": [{"name": "w", "clientConfig": {"url": "https://w.example/"}, "rules": []}],
}
(HOOK,) = compile_configuration(CONFIGURATION)
PATCH = b'[{"op": "copy", "from": "", "path": "/a"}, {"op": "add", "path": "/b", "value": [1, {"c": 2}]}]'


def reviewed(patch: bytes) -> bytes:
    """The answer of a mutating webhook with that patch."""
    response = {
        "uid": "1",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(patch).decode(),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return json.dumps(review).encode()


KUBECONFIG = b"""\
clusters: &clusters
- {name: a, cluster: {server: "https://a.example"}}
contexts:
- {name: a, context: {cluster: a, user: ""}}
users: null
preferences: {seen: *clusters}
"""
FILES = Path(tempfile.mkdtemp())


def respond(data: bytes) -> None:
    """Have the HTTP-01 listener answer a head; no response is awaited, as there are no challenges."""
    with contextlib.suppress(StopIteration):
        Responder()._answer(data).send(None)


def review(data: bytes) -> None:
    """Read the answer of a mutating webhook, and apply its patch."""
    verdict = read_review(HOOK, "v1", "1", data, mutating=True)
    apply_patch(HOOK, {"metadata": {"name": "o"}, "list": [0] * 10}, verdict.patch)


def kubeconfig(data: bytes) -> None:
    (FILES / "config").write_bytes(data)
    kubeconfig_file.read(FILES / "config")


# Protobuf has no types.
DecodeError: Any = import_module("google.protobuf.message").DecodeError
NOT_A_STORE = (ValueError, IndexError)
READERS = {
    "first message of TLS": Reader(
        lambda data: ClientHelloReader().feed(data),
        (NotTls,),
        b"\x16\x03\x01\0\x2f\1\0\0\x2b\3\3" + bytes(41),
    ),
    "DNS response": Reader(
        lambda data: parse_response(QUERY, data), (dns.exception.DNSException,), RESPONSE.to_wire()
    ),
    "head of a request to the HTTP-01 listener": Reader(
        respond, (), b"GET http://a/.well-known/acme-challenge/abc HTTP/1.1\r\nHost: a\r\n\r\n"
    ),
    "answer of an admission webhook": Reader(review, (BadReview, ApiError), reviewed(PATCH)),
    "patch of an admission webhook": Reader(
        lambda data: review(reviewed(data)), (BadReview, ApiError), PATCH
    ),
    "kubeconfig": Reader(kubeconfig, (kubeconfig_file.KubeconfigError,), KUBECONFIG),
    **{
        f"etcd's {method.path}": Reader(method.response.FromString, (DecodeError,), good.SerializeToString())
        for method, good in (
            (messages.RANGE, messages.RANGE.response(kvs=[{"key": b"k", "value": b"v"}] * 3, count=3)),
            (messages.WATCH, messages.WATCH.response(events=[{"kv": {"key": b"k", "version": 2}}] * 3)),
        )
    },
    "blocks of PEM": Reader(lambda data: list(pem.sections(data)), (), CERTIFICATE * 3),
    "private key": Reader(keys.load_private_key, (PkiError,), CONTENTS.key_pem),
    "public key": Reader(limits.check_public_key, (PkiError,), keys.public_key_der(KEY)),
    "request": Reader(csr.read_any_csr, (PkiError,), REQUEST),
    "certificate": Reader(read_der, (PkiError,), pem.blocks(CERTIFICATE)[0][1]),
    "chain": Reader(lambda data: chain.bundle(read_chain(data)), (PkiError,), CERTIFICATE),
    "answer of an issuer": Reader(read_answer, (PkiError,), CERTIFICATE),
    "JKS": Reader(
        lambda data: jks.open_store(data, password="changeit"),
        NOT_A_STORE,
        keystores.jks_files(CONTENTS, alias="a", now=NOW)[0],
    ),
    **{
        f"PKCS#12, {profile}": Reader(
            lambda data: pkcs12.open_store(data, password="changeit"),
            NOT_A_STORE,
            keystores.pkcs12_files(CONTENTS, profile=profile)[0],
        )
        for profile in ("Modern2023", "Modern2026")
    },
}
STEPS_PER_BYTE, FIXED_STEPS = 60, 20_000
CHANGES = st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=6), st.integers(0, 6)), max_size=4)


def steps_of(work: Callable[[], Any], errors: tuple[type[Exception], ...]) -> int:
    """The function calls of `work`, of Python and of C."""
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    except errors:
        pass
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.parametrize("name", READERS)
@given(changes=CHANGES, times=st.integers(1, 20))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_changed_bytes_end_in_an_error_of_the_reader_after_few_steps(
    name: str, changes: list[tuple[int, bytes, int]], times: int
) -> None:
    reader = READERS[name]
    data = reader.good
    for at, inserted, dropped in changes:
        at %= len(data) + 1
        data = data[:at] + inserted * times + data[at + dropped :]
    steps = steps_of(lambda: reader.read(data), reader.errors)
    assert steps <= FIXED_STEPS + STEPS_PER_BYTE * len(data)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_repeated_bytes_end_after_few_steps(name: str, count: int) -> None:
    reader = READERS[name]
    for piece in (
        reader.good,
        reader.good[: len(reader.good) // 2],
        reader.good[:27],
        b"-----BEGIN ",
        b"0\x80",
        b"[",
        b"- ",
        b"{a: ",
    ):
        data = piece * count
        assert steps_of(lambda: reader.read(data), reader.errors) <= FIXED_STEPS + STEPS_PER_BYTE * len(data)  # noqa: B023


def test_good_bytes_are_read() -> None:
    for reader in READERS.values():
        reader.read(reader.good)


def test_white_space_in_a_selector_is_skipped_in_linear_time() -> None:
    """It took a minute and a half for the 64 KiB that a request line may have."""
    assert _TOKEN.findall(" \t" * 10**6 + "a , b") == ["a", ",", "b"]
