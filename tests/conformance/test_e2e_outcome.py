"""How the command that runs cert-manager's end-to-end tests judges what came out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.e2e.chosen import DEVIATIONS, SUITES, Suite
from conformance.e2e.outcome import Case, Outcome, outcome_of

KNOWN = "[cert-manager] ACME Issuer ACME account with External Account Binding"


def test_cases_that_pass_or_are_skipped_are_as_expected() -> None:
    outcome = Outcome("one", (Case("a", "passed"), Case(KNOWN, "skipped")))
    assert list(outcome.wrong()) == []
    assert outcome.passed() == 1
    assert outcome.skipped() == {DEVIATIONS[3].reason: 1}


@pytest.mark.parametrize("state", ["failed", "panicked", "timedout", "interrupted", "aborted"])
def test_a_failure_that_is_not_known_is_wrong_and_says_why(state: str) -> None:
    outcome = Outcome("one", (Case("a", state, "no such thing"),))
    assert list(outcome.wrong()) == [f"a\n    {state}: no such thing"]


def test_a_known_deviation_may_fail() -> None:
    outcome = Outcome("one", (Case(KNOWN, "failed", "timed out"),))
    assert list(outcome.wrong()) == []
    assert outcome.known_failures() == {DEVIATIONS[3].reason: 1}


def test_a_known_deviation_that_passes_is_none_and_wrong() -> None:
    (wrong,) = Outcome("one", (Case(KNOWN, "passed"),)).wrong()
    assert "passes, although" in wrong


def test_a_suite_without_a_report_or_without_cases_is_wrong() -> None:
    assert list(Outcome("one", broken="ended with 2").wrong()) == ["one: ended with 2"]
    assert list(Outcome("one").wrong()) == ["one: no test has such a name"]


def test_the_cases_of_a_suite_are_read_from_the_report_of_all(tmp_path: Path) -> None:
    def spec(kind: str, containers: list[str] | None, text: str, **more: object) -> dict[str, object]:
        return {"LeafNodeType": kind, "ContainerHierarchyTexts": containers, "LeafNodeText": text, **more}

    specs = [
        spec("SynchronizedBeforeSuite", None, "", State="passed"),
        spec("It", ["[x] Things", "when red"], "should roll", State="passed"),
        spec("It", ["[x] Things"], "should float", State="failed", Failure={"Message": "it\n  sank"}),
        spec("It", ["[x] Others"], "should roll", State="skipped"),
    ]
    report = tmp_path / "report.json"
    report.write_text(json.dumps([{"SpecReports": specs}]))
    assert outcome_of(Suite("things", r"\[x\] Things"), report).cases == (
        Case("[x] Things when red should roll", "passed"),
        Case("[x] Things should float", "failed", "it sank"),
    )


def test_no_case_belongs_to_two_suites() -> None:
    names = (
        "[Conformance] Certificates with issuer type CA ClusterIssuer should issue",
        "[Conformance] Certificates with issuer type ACME HTTP01 Issuer (Ingress) should issue",
        "[cert-manager] CA CertificateRequest when the CA is the root should generate",
        "[cert-manager] ACME Certificate (HTTP01) should fail",
        "[cert-manager] Certificate SecretTemplate should not remove",
        "[cert-manager] CertificateRequests SelfSigned Secret Issuer: should be signed",
        "[cert-manager] SelfSigned CertificateRequest Self Signed and private key should generate",
    )
    assert [[s.name for s in SUITES if s.holds(name)] for name in names] == [
        ["ca"],
        ["acme-http01"],
        ["issuer-ca"],
        ["issuer-acme"],
        ["secrets"],
        ["requests"],
        ["issuer-selfsigned"],
    ]
