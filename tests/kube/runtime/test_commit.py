from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.errors import Conflict
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.commit import SpecAndStatus, StatusWriter, merge_patch
from certwright.kube.util.clock import TestClock
from certwright.resources.certificate import Certificate, CertificateSpec, CertificateStatus
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES
from kube.client.peers import Peer

replace = msgspec.structs.replace

Json = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
Objects = st.dictionaries(st.sampled_from("abc"), Json, max_size=3)


def apply_patch(target: Any, patch: Any) -> Any:
    """RFC 7386 §2, as it is written there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_patch(result.get(name), value)
    return result


@given(Objects, Objects)
def test_applying_the_patch_to_the_old_gives_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = merge_patch(old, new)
    assert apply_patch(old, patch) == new
    assert (patch == {}) == (old == new)


def test_what_is_gone_becomes_null_and_what_is_equal_is_left_out() -> None:
    assert merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}, "e": [1]}) == {
        "a": None,
        "b": {"d": None},
        "e": [1],
    }


def test_a_null_that_a_patch_cannot_write_counts_as_lacking() -> None:
    assert merge_patch({"a": {"x": 1}, "b": 1}, {"a": {"x": 1, "y": None}, "b": None}) == {"b": None}


def certificate(version: int, **status: Any) -> Certificate:
    return Certificate(
        metadata=ObjectMeta(name="web", namespace="n", resource_version=str(version)),
        spec=CertificateSpec(secret_name="s", issuer_ref=IssuerReference(name="i")),
        status=CertificateStatus(**status),
    )


class Desk:
    """A status writer, its informer, and the server that it writes to."""

    def __init__(self) -> None:
        self.peer = Peer()
        client = self.peer.client()
        self.informer = Informer(client, CERTIFICATES, TestClock())
        self.writer = StatusWriter(client, self.informer)


async def test_a_changed_status_is_one_patch_and_its_answer_is_seen_at_once() -> None:
    desk = Desk()
    old = certificate(7, revision=1, next_private_key_secret_name="k")
    desk.peer.answer(200, msgspec.to_builtins(certificate(8, revision=2)))
    written = await desk.writer.commit(CERTIFICATES, old, replace(old, status=CertificateStatus(revision=2)))
    assert desk.peer.targets == ["PATCH /apis/cert-manager.io/v1/namespaces/n/certificates/web/status"]
    assert msgspec.json.decode(desk.peer.requests[0].body) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"revision": 2, "nextPrivateKeySecretName": None},
    }
    assert desk.informer.cache.get(old.metadata.key) == written == certificate(8, revision=2)


async def test_an_equal_status_is_not_written() -> None:
    desk = Desk()
    old = certificate(7, revision=1)
    assert await desk.writer.commit(CERTIFICATES, old, certificate(7, revision=1)) is old
    assert desk.peer.requests == []


async def test_spec_and_status_never_go_together() -> None:
    desk = Desk()
    old = certificate(7)
    new = replace(old, spec=replace(old.spec, secret_name="t"), status=CertificateStatus(revision=2))
    with pytest.raises(SpecAndStatus, match="Certificate n/web"):
        await desk.writer.commit(CERTIFICATES, old, new)
    assert desk.peer.requests == []


async def test_somebody_else_was_first() -> None:
    desk = Desk()
    desk.peer.answer(409, {"reason": "Conflict", "message": "the object has been modified"})
    with pytest.raises(Conflict):
        await desk.writer.commit(CERTIFICATES, certificate(7), certificate(7, revision=2))
    assert len(desk.informer.cache) == 0
