"""Problem documents, and that every type of error has something to be done about it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from certwright.acme.protocol import errors
from certwright.acme.protocol.errors import PROBLEM_TYPES, Problem, Reaction, read_problem

PROBLEM = "application/problem+json"
PREFIX = "urn:ietf:params:acme:error:"

# RFC 8555 §6.7, in its order.
RFC_8555 = (
    *("accountDoesNotExist", "alreadyRevoked", "badCSR", "badNonce", "badPublicKey", "badRevocationReason"),
    *("badSignatureAlgorithm", "caa", "compound", "connection", "dns", "externalAccountRequired"),
    *("incorrectResponse", "invalidContact", "malformed", "orderNotReady", "rateLimited"),
    *("rejectedIdentifier", "serverInternal", "tls", "unauthorized", "unsupportedContact"),
    *("unsupportedIdentifier", "userActionRequired"),
)


def test_every_type_of_the_specifications_is_in_the_table() -> None:
    others = {"alreadyReplaced", "conflict", "invalidProfile"}
    assert set(PROBLEM_TYPES) == set(RFC_8555) | others
    assert {problem_type.reaction for problem_type in PROBLEM_TYPES.values()} == set(Reaction)


def test_no_other_module_has_a_table_of_types() -> None:
    # Words that have other meanings too.
    names = set(PROBLEM_TYPES) - {"caa", "compound", "conflict", "connection", "dns", "tls"}
    source = Path(errors.__file__).parents[2]
    for path in source.rglob("*.py"):
        if path != Path(errors.__file__):
            named = names & set(re.findall(r'"(\w+)"', path.read_text()))
            assert len(named) <= 2, f"{path.name} names {sorted(named)}"


@pytest.mark.parametrize("name", RFC_8555)
def test_the_type_decides_and_not_the_status(name: str) -> None:
    for status in (400, 403, 429, 500):
        body = json.dumps({"type": PREFIX + name, "detail": "words"}).encode()
        parsed = read_problem(body, status, media_type=PROBLEM)
        assert parsed is not None
        assert parsed.reaction is PROBLEM_TYPES[name].reaction
        assert parsed.sentence == f"words [{name}]"


@pytest.mark.parametrize(
    ("status", "reaction"),
    [
        (400, Reaction.ORDER_FAILS),
        (403, Reaction.ORDER_FAILS),
        (429, Reaction.WAIT),
        (408, Reaction.WAIT),
        (500, Reaction.WAIT),
        (503, Reaction.WAIT),
    ],
)
def test_an_unknown_type_is_judged_by_its_status(status: int, reaction: Reaction) -> None:
    for kind in ("about:blank", PREFIX + "ofTomorrow", "https://example.org/other#rateLimited"):
        parsed = read_problem(json.dumps({"type": kind, "detail": "d"}).encode(), status, media_type=PROBLEM)
        assert parsed is not None
        assert parsed.reaction is reaction


def test_what_is_said_of_each_name_is_in_the_sentence() -> None:
    document: dict[str, Any] = {
        "type": PREFIX + "malformed",
        "detail": "Some of the identifiers requested were rejected.",
        "subproblems": [
            {
                "type": PREFIX + "dns",
                "detail": "Bad _",
                "identifier": {"type": "dns", "value": "_a"},
            },
            {"type": PREFIX + "caa", "detail": "CAA", "identifier": {"type": "dns", "value": "b.org"}},
            "nonsense",
        ],
    }
    parsed = read_problem(json.dumps(document).encode(), 403, media_type=PROBLEM)
    assert parsed is not None
    assert parsed.sentence == (
        "Some of the identifiers requested were rejected (_a: Bad _; b.org: CAA) [malformed]"
    )
    assert parsed.sentence_with_urn == (
        "Some of the identifiers requested were rejected (_a: Bad _; b.org: CAA) "
        "[403 urn:ietf:params:acme:error:malformed]"
    )
    assert [sub.name for sub in parsed.subproblems] == ["dns", "caa"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b"null", b'{"status": 5}', b"\xff", b"[" * 9000]
)
def test_what_is_no_problem_document_is_none(body: bytes) -> None:
    assert read_problem(body, 500, media_type=PROBLEM) is None


def test_members_of_a_wrong_type_do_not_lose_the_rest() -> None:
    body = b'{"type": 5, "detail": "told", "status": true, "subproblems": 7, "identifier": "x"}'
    assert read_problem(body, 403, media_type=PROBLEM) == Problem(detail="told", status=403)


def test_a_sentence_is_one_line_without_control_characters() -> None:
    hostile = Problem(detail="a\nb\x1b[31m\tc" + "x" * 5000)
    assert "\n" not in hostile.sentence
    assert "\x1b" not in hostile.sentence
    assert len(hostile.sentence) <= 2000


def test_other_json_is_not_quoted_as_a_problem() -> None:
    # Many an internal API answers so; an issuer may name any server.
    body = b'{"detail": "the key of the vault is 1234", "title": "x", "type": "https://internal/error"}'
    for media_type in ("application/json", "", "text/html; x=application/problem+json"):
        assert read_problem(body, 403, media_type=media_type) is None
    acme = json.dumps({"type": f"{PREFIX}malformed", "detail": "no"}).encode()
    assert read_problem(acme, 403, media_type="application/json") is not None
