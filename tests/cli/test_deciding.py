"""`approve` and `deny`, against a real daemon."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from cli.calls import PATIENT, Cli

# The daemon's own approver has no right to approve for this kind, so that its requests stay undecided.
KIND = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: signets.example.test}
spec:
  group: example.test
  scope: Namespaced
  names: {plural: signets, singular: signet, kind: Signet, listKind: SignetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def request_name(cli: Cli, namespace: str) -> str:
    """A request that nobody decides about by himself."""
    assert cli("apply", "-f", "-", stdin=KIND).status == 0
    assert cli("wait", "crd/signets.example.test", "--for=condition=Established", *PATIENT).status == 0
    csr = build_csr(CsrPlan(common_name="mine"), generate(KeyPlan.of("ECDSA")))
    spec = {
        "request": base64.b64encode(csr).decode(),
        "issuerRef": {"name": "s", "kind": "Signet", "group": "example.test"},
    }
    body = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    assert cli("apply", "-f", "-", "-n", namespace, stdin=json.dumps(body)).status == 0
    return "mine"


def decisions(cli: Cli, name: str, namespace: str) -> list[dict[str, Any]]:
    """The conditions Approved and Denied."""
    shown = cli("get", "certificaterequest", name, "-n", namespace, "-o", "json")
    conditions = json.loads(shown.out).get("status", {}).get("conditions", [])
    return [condition for condition in conditions if condition["type"] in ("Approved", "Denied")]


def test_a_request_is_approved_once_and_for_all(cli: Cli, namespace: str, request_name: str) -> None:
    here = (request_name, "-n", namespace)
    assert cli("approve", *here).out == f"certificaterequest {namespace}/mine approved\n"
    (condition,) = decisions(cli, request_name, namespace)
    assert (condition["type"], condition["status"]) == ("Approved", "True")
    assert condition["reason"] == "KubectlCertManager"
    assert condition["message"] == 'manually approved by "certwright"'
    again = cli("approve", *here)
    assert (again.status, again.out) == (0, f"certificaterequest {namespace}/mine is approved already\n")
    other = cli("deny", *here)
    assert (other.status, other.out) == (1, "")
    assert other.err == (
        f"error: certificaterequest {namespace}/mine is approved already, which is final; only a new request "
        "can be denied\n"
    )


def test_a_request_is_denied_with_words_of_ones_own(cli: Cli, namespace: str, request_name: str) -> None:
    words = ("--reason", "NotInThisHouse", "--message", "ask for another name")
    denied = cli("deny", request_name, "-n", namespace, *words)
    assert (denied.status, denied.out) == (0, f"certificaterequest {namespace}/mine denied\n")
    (condition,) = decisions(cli, request_name, namespace)
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "Denied",
        "NotInThisHouse",
        "ask for another name",
    )


def test_of_several_requests_each_is_told(cli: Cli, namespace: str, request_name: str) -> None:
    both = cli("approve", "nobody", request_name, "-n", namespace)
    assert both.status == 1
    assert both.out == f"certificaterequest {namespace}/mine approved\n"
    assert both.err == (
        f"error: certificaterequest {namespace}/nobody: certificaterequests.cert-manager.io "
        '"nobody" not found\n'
    )
