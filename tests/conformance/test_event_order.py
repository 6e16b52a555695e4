"""A client that has an event also has those of earlier writes, on whichever watch they come."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.client.kubeconfig import load
from conformance.daemon import running_daemon
from support.event_order import BUILT_IN_FORMS, FORMS, Subject, out_of_order
from support.oracle import Oracle
from support.waiting import until_so

PAIRS = 2000 if "CERTWRIGHT_SOAK" in os.environ else 150
GROUP = "order.test"


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Subject]:
    """Our server on SQLite, with encrypted Secrets, reached as by other programs."""
    with running_daemon(folder, "--controllers", "") as daemon:
        namespace = "namespaces/default"
        yield Subject(
            daemon.url,
            f"/api/v1/{namespace}/secrets",
            f"/apis/cert-manager.io/v1/{namespace}/certificates",
            BUILT_IN_FORMS,
            token=load(daemon.kubeconfig).token,
        )


def reference(oracle: Oracle) -> Subject:
    """The reference server with two definitions instead of the kinds that it lacks."""
    for kind, plural in (("Secret", "secrets"), ("Certificate", "certificates")):
        request = urllib.request.Request(  # noqa: S310 - the reference server
            f"{oracle.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json.dumps(definition(kind, plural)).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(request, context=oracle.client_tls).close()  # noqa: S310 - see above
    collection = f"/apis/{GROUP}/v1/namespaces/default"
    subject = Subject(
        oracle.url,
        f"{collection}/secrets",
        f"{collection}/certificates",
        FORMS,
        certificate=str(oracle.certificate_path),
    )
    for path in (subject.secrets, subject.certificates):
        until_so(lambda path=path: is_served(oracle, path))  # type: ignore[misc]
    return subject


def definition(kind: str, plural: str) -> dict[str, Any]:
    """A definition without a schema."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def is_served(oracle: Oracle, path: str) -> bool:
    """Whether the collection exists by now."""
    try:
        urllib.request.urlopen(f"{oracle.url}{path}", context=oracle.client_tls).close()  # noqa: S310 - see above
    except urllib.error.HTTPError:
        return False
    return True


def test_an_event_never_arrives_before_those_of_earlier_writes_on_other_watches(tmp_path: Path) -> None:
    with ours(tmp_path) as subject:
        assert out_of_order(subject, PAIRS) == dict.fromkeys(BUILT_IN_FORMS, 0)


@pytest.mark.skipif("CERTWRIGHT_SOAK" not in os.environ, reason="compares shares of 2,000: CERTWRIGHT_SOAK=1")
def test_fewer_pairs_are_out_of_order_than_on_the_reference(tmp_path: Path, oracle: Oracle) -> None:
    expected = out_of_order(reference(oracle), PAIRS)
    with ours(tmp_path) as subject:
        violations = out_of_order(subject, PAIRS)
    print(f"out of order, of {PAIRS} pairs: ours {violations}, the reference {expected}")
    assert max(violations.values()) <= max(expected.values())
