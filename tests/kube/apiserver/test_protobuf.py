"""The protobuf codec against what client-go makes, and against what nobody should send."""

from __future__ import annotations

import base64
import lzma
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.protobuf import codec as protobuf
from certwright.kube.apiserver.protobuf import fields as protobuf_fields
from certwright.kube.apiserver.protobuf.wire import MAX_MESSAGES, put_piece, put_varint
from certwright.kube.util.clock import TestClock

VECTORS_FILE = Path(__file__).with_name("data") / "protobuf-vectors.jsonl.xz"


class Vector(msgspec.Struct):
    release: str
    case: str
    json: dict[str, Any]
    protobuf: str

    @property
    def body(self) -> bytes:
        return base64.b64decode(self.protobuf)


VECTORS = [
    msgspec.json.decode(line, type=Vector) for line in lzma.decompress(VECTORS_FILE.read_bytes()).splitlines()
]


def test_what_client_go_sends_is_read_as_its_json_says_it() -> None:
    assert len(VECTORS) == 356
    for vector in VECTORS:
        assert protobuf.decode(vector.body) == vector.json, (vector.release, vector.json["kind"])


def test_objects_are_written_byte_for_byte_as_client_go_writes_them() -> None:
    for vector in VECTORS:
        assert protobuf.encode(vector.json) == vector.body, (vector.release, vector.json["kind"])


def test_every_built_in_kind_has_a_protobuf_form() -> None:
    for definition in make_registry(TestClock()).all():
        if not definition.custom:
            assert protobuf_fields.message_of(definition.api_version, definition.kind), definition.kind


def secret(*fields: bytes, kind: str = "Secret", version: str = "v1") -> bytes:
    """A body with these bytes as its message."""
    return protobuf.envelope(version, kind, b"".join(fields))


def metadata(*fields: bytes) -> bytes:
    return put_piece(b"\x0a", b"".join(fields))


def test_fields_that_nobody_knows_are_skipped() -> None:
    unknown = b"\xf8\x7f\x05" + b"\xf9\x7f" + bytes(8) + b"\xfd\x7f" + bytes(4) + b"\xfa\x7f\x02ab"
    group = b"\xfb\x7f\x08\x01\x0b\x12\x01a\x0c\xfc\x7f"
    decoded = protobuf.decode(secret(unknown, group, metadata(b"\x0a\x01a")))
    assert decoded == {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}


def test_a_message_in_two_parts_is_one_and_the_last_value_counts() -> None:
    decoded = protobuf.decode(secret(metadata(b"\x0a\x01a", b"\x1a\x01n"), metadata(b"\x0a\x01b")))
    assert decoded["metadata"] == {"name": "b", "namespace": "n"}
    emptied = protobuf.decode(secret(metadata(b"\x0a\x01a"), metadata(b"\x0a\x00")))
    assert emptied["metadata"] == {}


def test_the_path_says_what_a_body_without_a_kind_is() -> None:
    body = secret(metadata(b"\x0a\x01a"), kind="", version="")
    assert protobuf.decode(body, api_version="v1", kind="ConfigMap")["kind"] == "ConfigMap"


def test_options_are_known_in_every_group_version() -> None:
    body = secret(b"\x22\x0aForeground", kind="DeleteOptions", version="coordination.k8s.io/v1")
    assert protobuf.decode(body)["propagationPolicy"] == "Foreground"


def test_numbers_in_packed_lists_are_read() -> None:
    context = put_piece(b"\x22", b"\x01\x02")  # supplementalGroups
    body = secret(put_piece(b"\x12", put_piece(b"\x72", context)), kind="Pod")
    assert protobuf.decode(body)["spec"]["securityContext"]["supplementalGroups"] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (b"\x0a\x05a", "metadata: a value of 5 bytes goes beyond the end of its message (at byte 2)"),
        (metadata(b"\x0a\x02\xff\xfe"), "metadata.name: the text is not UTF-8 (at byte 4)"),
        (metadata(b"\x08\x01"), "metadata.name: it cannot be of wire type 0 (at byte 2)"),
        (metadata(b"\x38" + b"\xff" * 10), "a number has more than ten bytes"),
        (metadata(b"\x38\x80"), "metadata.generation: a number goes beyond the end of its message"),
        (metadata(b"\x6a\x02\x0a\x05"), "metadata.ownerReferences[0].kind: a value of 5 bytes"),
        (metadata(b"\x5a\x05\x0a\x01a\x10\x01"), "metadata.labels: an entry must have texts or messages"),
        (metadata(b"\x5a\x07\x0a\x01a\x12\x02\xff\xff"), "metadata.labels[a]: the text is not UTF-8"),
        (metadata(b"\x42\x09\x08" + b"\xff" * 7 + b"\x7f"), "metadata.creationTimestamp: the time is not"),
        (
            metadata(b"\x8a\x01\x05\x3a\x03\x0a\x01{"),
            "metadata.managedFields[0].fieldsV1: the bytes are not JSON",
        ),
        (b"\x00\x00", "0 is no tag of a field"),
        (b"\xfc\x7f", "a group ends that has not begun"),
        (b"\xfb\x7f\x08\x01", "is no tag of a field"),
    ],
)
def test_a_malformed_message_is_told_of_with_field_and_offset(fields: bytes, named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        protobuf.decode(secret(fields))
    assert named in caught.value.message
    assert "at byte" in caught.value.message


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "empty data"),
        (b"k8s\x00", "empty body"),
        (b"k8s\x00\x0a\x05a", "the envelope is not a valid protobuf message"),
        (b'{"kind":"Secret"}', "expected prefix [107 56 115 0]"),
        (secret(kind="Certificate", version="cert-manager.io/v1"), 'no kind "Certificate" is registered'),
        (b"k8s\x00\x10\x01", "the envelope holds no object"),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        protobuf.decode(body, api_version="v1", kind="Secret")
    assert named in caught.value.message


def test_nesting_has_an_end() -> None:
    schema = b""
    for _ in range(5000):
        schema = put_piece(b"\xe2\x01", schema)  # not
    body = secret(put_piece(b"\x12", schema), kind="CustomResourceDefinition")
    with pytest.raises(BadRequest):
        protobuf.decode(body)
    deep = put_piece(b"\x0a", schema)
    version = put_piece(b"\x3a", put_piece(b"\x22", deep))
    crd = secret(
        put_piece(b"\x12", version), kind="CustomResourceDefinition", version="apiextensions.k8s.io/v1"
    )
    with pytest.raises(BadRequest, match="nested too deeply"):
        protobuf.decode(crd)


def test_a_small_body_cannot_become_a_large_object() -> None:
    owners = b"\x6a\x00" * 1_500_000
    body = secret(metadata(owners))
    tracemalloc.start()
    try:
        started = time.thread_time()
        with pytest.raises(BadRequest, match=f"more than {MAX_MESSAGES} messages"):
            protobuf.decode(body)
        took = time.thread_time() - started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024
    assert took < 5


@pytest.mark.parametrize(
    ("flood", "refused"),
    [
        (b"\xf8\x7f\x05" * 1_000_000, True),  # fields that nobody knows
        (metadata(b"\x42\x02\x08\x01" * 700_000), True),  # times
        (metadata(b"\x38\x01" * 1_500_000), False),  # numbers, the last of which counts
        (metadata(b"\x0a\x00" * 1_500_000), False),  # texts
    ],
    ids=["unknown", "times", "numbers", "texts"],
)
def test_a_flood_of_fields_is_over_soon(flood: bytes, refused: bool) -> None:
    started = time.thread_time()
    try:
        protobuf.decode(secret(flood))
    except BadRequest:
        assert refused
    else:
        assert not refused
    # A tenth of that where it was written.
    assert time.thread_time() - started < 8


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back(number: int) -> None:
    raw = put_piece(b"\x0a", b"\x38" + put_varint(number))
    assert protobuf.decode(secret(raw))["metadata"].get("generation", 0) == number


def test_a_value_that_does_not_fit_its_field_has_no_protobuf_form() -> None:
    for obj in (
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": 5}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "%%%"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"creationTimestamp": "yesterday"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": []},
        {"apiVersion": "cert-manager.io/v1", "kind": "Certificate"},
    ):
        with pytest.raises(protobuf.NoSuchForm):
            protobuf.encode(obj)
