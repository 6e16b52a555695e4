"""`--log-format json`: every line on both outputs is one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cli.calls import EXAMPLES, PATIENT, Process

Start = Callable[..., Process]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("serve", "--listen", "127.0.0.1:99999"), 2, "port 99999 is too large"),
        (("serve", "--nosuch"), 2, "No such option '--nosuch'"),
        (("controllers", "--acme-process=", "--kubeconfig", "none"), 1, "--acme-process no longer has any"),
        (("run", "none.yaml"), 1, "none.yaml: cannot be read"),
    ],
)
def test_errors_and_warnings_at_the_start_are_json_lines_too(
    start: Start, words: tuple[str, ...], status: int, sentence: str
) -> None:
    outcome = start(*words, "--log-format", "json").rest()
    lines = [json.loads(line) for line in (outcome.out + outcome.err).splitlines()]
    assert (outcome.status, {line["level"] for line in lines} <= {"warning", "error"}) == (status, True)
    assert any(sentence in line["msg"] for line in lines)


def test_run_with_a_json_log_prints_nothing_else(start: Start) -> None:
    words = ("run", str(EXAMPLES / "quickstart.yaml"), "--once", "--listen", "127.0.0.1:0", *PATIENT)
    outcome = start(*words, "--log-format=json").rest()
    assert outcome.status == 0
    printed, logged = (
        [json.loads(line) for line in text.splitlines()] for text in (outcome.out, outcome.err)
    )
    assert "certificate.cert-manager.io/web created" in [line["msg"] for line in printed]
    assert any(line["msg"].startswith("default/web: ready, valid until ") for line in printed)
    assert "default/web" in [line["certificate"] for line in logged if line["msg"] == "certificate issued"]
    assert (logged[-1]["msg"], logged[-1]["reason"]) == ("stopping", "done")
