"""Expressions that ask who may do what."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.apiserver.cel import environment
from certwright.kube.apiserver.cel.authz import AUTHORIZER, Question, asking, request_resource

VARIABLES = ("authorizer", "authorizer.requestResource", "request")


def ask(expression: str, *, allowed: bool = True, **data: Any) -> tuple[Any, list[Question]]:
    """The value of an expression, and what it asked."""
    asked: list[Question] = []

    def decide(question: Question) -> tuple[bool, str]:
        asked.append(question)
        return allowed, "because"

    variables = {
        "authorizer": AUTHORIZER,
        "authorizer.requestResource": request_resource("g", "things", "status", "ns", "a"),
        **data,
    }
    with asking(decide):
        return environment.Expression(expression, VARIABLES).run(variables), asked


@pytest.mark.parametrize(
    ("expression", "question"),
    [
        ("authorizer.path('/metrics').check('get').allowed()", Question("", "get", path="/metrics")),
        (
            "authorizer.group('').resource('pods').check('list').allowed()",
            Question("", "list", "", "pods"),
        ),
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d')"
            ".check('update').allowed()",
            Question("", "update", "apps", "deployments", "scale", "n", "d"),
        ),
        (
            "authorizer.serviceAccount('ns', 'builder').group('').resource('pods')"
            ".fieldSelector('spec.nodeName=a').labelSelector('x=y').check('list').allowed()",
            Question("ns/builder", "list", "", "pods"),
        ),
        (
            "authorizer.requestResource.check('approve').allowed()",
            Question("", "approve", "g", "things", "status", "ns", "a"),
        ),
        (
            "authorizer.requestResource.name('b').check(request.verb).reason() == 'because'",
            Question("", "delete", "g", "things", "status", "ns", "b"),
        ),
    ],
)
def test_an_expression_asks(expression: str, question: Question) -> None:
    assert ask(expression, request={"verb": "delete"}) == (True, [question])


def test_what_is_not_allowed_is_no_error() -> None:
    refused = "authorizer.path('/x').check('get')"
    assert ask(f"!{refused}.allowed() && !{refused}.errored() && {refused}.error() == ''", allowed=False)[0]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        (
            "authorizer.serviceAccount('ns', 'A').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('a.b', 'a').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
    ],
)
def test_a_question_must_make_sense(expression: str, text: str) -> None:
    with pytest.raises(environment.EvaluationError, match=text):
        ask(expression)


def test_only_what_can_be_asked_compiles() -> None:
    with pytest.raises(environment.CompileError):
        environment.Expression("authorizer.verb('x')", VARIABLES)
