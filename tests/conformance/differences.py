"""Where our server answers otherwise than the reference, on purpose: all of it, with the reason.

A difference levels both answers before they are compared, and only those to requests that it is about.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Level = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """`asked`: a pattern for the beginning of the request line. `level` makes equal what may differ; it gets
    a copy of the answer."""

    reason: str
    asked: str
    level: Level


def without(*names: str) -> Level:
    """Takes members of these names out, wherever they are."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(item) for name, item in value.items() if name not in names}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip


def rewritten(pattern: str, replacement: str) -> Level:
    """Replaces what a pattern finds, in every text."""
    compiled = re.compile(pattern, re.DOTALL)

    def rewrite(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rewrite(item) for name, item in value.items()}
        if isinstance(value, list):
            return [rewrite(item) for item in value]
        return compiled.sub(replacement, value) if isinstance(value, str) else value

    return rewrite


def _causes_as_a_set(answer: Any) -> Any:
    """The causes of a `Status` sorted, each once; the message, which lists them, up to where they begin."""
    body = answer.get("body") if isinstance(answer, dict) else None
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return answer
    details = body.get("details") or {}
    causes = details.get("causes") or []
    unique = {repr(sorted(cause.items())): cause for cause in causes}
    if causes:
        details["causes"] = [unique[key] for key in sorted(unique)]
    if len(unique) > 1:
        body["message"] = body["message"].partition(" is invalid: ")[0]
    return answer


def _lines_in_order(answer: Any) -> Any:
    body = answer.get("body") if isinstance(answer, dict) else None
    if isinstance(body, dict) and ": errors:\n" in body.get("message", ""):
        head, *lines = body["message"].split("\n")
        body["message"] = "\n".join([head, *sorted(lines)])
    return answer


def _texts_of_columns(answer: Any) -> Any:
    body = answer.get("body") or answer.get("object") if isinstance(answer, dict) else None
    for column in (body.get("columnDefinitions") or ()) if isinstance(body, dict) else ():
        if column["name"] in ("Name", "Age", "Created At"):
            column["description"] = "…"
    return answer


def _by_namespace(answer: Any) -> Any:
    body = answer["body"]
    for name in ("items", "rows"):
        if isinstance(body, dict) and isinstance(body.get(name), list):
            body[name].sort(key=lambda item: repr(sorted((item.get("object") or item)["metadata"].items())))
    return answer


def _resources_sorted(answer: Any) -> Any:
    body = answer["body"]
    if isinstance(body, dict) and isinstance(body.get("resources"), list):
        body["resources"].sort(key=lambda resource: str(resource["name"]).partition("/")[0])
    return answer


def _as_in_a_cluster(answer: Any) -> Any:
    """The manager of what the definitions' controllers write, under the name of the usual program."""
    if isinstance(answer, dict):
        if "fieldsType" in answer and answer.get("manager") == "apiextensions-apiserver":
            return {**answer, "manager": "kube-apiserver"}
        renamed = {name: _as_in_a_cluster(item) for name, item in answer.items()}
        if isinstance(entries := renamed.get("managedFields"), list):
            renamed["managedFields"] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
        return renamed
    return [_as_in_a_cluster(item) for item in answer] if isinstance(answer, list) else answer


_GO_WORDS = (
    r"json: cannot unmarshal",
    r"invalid character '",
    r"unexpected end of JSON input",
    r"parsing time ",
    r"illegal base64 data",
    r"(resourceVersion: Invalid value: \"[^\"]*\": )?strconv\.Parse",
    r"time: (missing unit|invalid duration|unknown unit)",
    r"\S*: expected (string|map|list|numeric|boolean|any scalar)[^\n]*, got ",
    r"\.\S+ accessor error: ",
)
_OUR_WORDS = (
    r"the body is not valid JSON: ",
    r"[^ \n\x00]*(the body|the patch|the configuration|operation \d+)?: expected [^\n]*, got ",
    r"\S+: expected (a time in RFC 3339|int <= )",
    r"\S+: the text is not valid base64",
    r"'[^']*' is not a duration",
)
_UNREADABLE = (
    r"(?s:^k8s\x00.*?)?(error unmarshaling JSON: while decoding JSON: |json parse error: )?"
    r"(DeleteOptions: )?((compilation failed|error parsing regexp): .*"
    rf"|({'|'.join(_GO_WORDS + _OUR_WORDS)})[^\n]*)"
)
"""Where a text says, in the words of either server, why something cannot be read."""

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "what controls definitions is a program of its own there, in a cluster it is the kube-apiserver",
        ".* /apis/apiextensions.k8s.io/",
        _as_in_a_cluster,
    ),
    Difference(
        "causes come in the order of Go's maps, which is by chance, and Kubernetes lists some of them thrice",
        "",
        _causes_as_a_set,
    ),
    Difference(
        "what is wrong with the types of an applied configuration comes in the order of Go's maps, by chance",
        "PATCH ",
        _lines_in_order,
    ),
    Difference(
        "a YAML parser says in its own words what is wrong with a text",
        "PATCH ",
        rewritten(r"(error converting YAML to JSON: )(?!yaml: unmarshal errors).*", r"\1…"),
    ),
    Difference(
        "what is wrong with an unreadable body, number, time or expression is in our words, not in Go's",
        "",
        rewritten(_UNREADABLE, "UNREADABLE"),
    ),
    Difference(
        "a schema that is refused as a whole is shown as the server's own struct there",
        "(POST|PUT|PATCH) /apis/apiextensions.k8s.io/",
        rewritten(r"Invalid value: {.*}: only \[", "Invalid value: …: only ["),
    ),
    Difference(
        "a decoder says in its own words what is wrong with a continue token",
        "GET .*continue=",
        rewritten(r"(continue key is not valid: ).*", r"\1…"),
    ),
    Difference(
        "descriptions are documentation: we write our own",
        "(GET|POST|PUT|PATCH|DELETE|event of GET) .*as=Table",
        _texts_of_columns,
    ),
    Difference(
        "across namespaces the reference orders by its keys in etcd ('-' before '/'), we by the names",
        "GET /apis/[^/]+/[^/]+/[^/]+\\?labelSelector=story=",
        _by_namespace,
    ),
    Difference(
        "across namespaces the reference orders by its keys in etcd: so the first of a page is another one",
        "GET /apis/[^/]+/[^/]+/[^/]+\\?labelSelector=story=.*&limit=1",
        without("namespace", "uid", "resourceVersion"),
    ),
    Difference(
        "the resources of a group come in the order of Go's maps, which is by chance; ours by their names",
        "[A-Z]+ /apis/[^/]+/[^/]+/? ",
        _resources_sorted,
    ),
    Difference(
        "Kubernetes names the types of a schema after the time and their place in it; we number them",
        "(POST|PUT|PATCH) /apis/apiextensions.k8s.io/",
        rewritten(r"selfType\d+(\.[A-Za-z0-9_@.]+)?", "selfType"),
    ),
    Difference(
        "in process nothing cuts the body of the answer to HEAD; the HTTP face does",
        "HEAD ",
        without("body"),
    ),
    Difference(
        "the reference's words for a precondition of its storage name its key in etcd",
        "(PUT|PATCH) ",
        rewritten(r"StorageError: invalid object, .*AdditionalErrorMsg: ", ""),
    ),
)

used: Counter[str] = Counter()
"""How many answers a difference has made equal, by its reason."""
compared: Counter[str] = Counter()
"""How many answers were compared, by the form of our server."""


def level(asked: str, theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Both answers without the differences that are meant."""
    for difference in DIFFERENCES:
        if theirs == ours:
            break
        if re.match(difference.asked, asked):
            reference_level, other = (
                difference.level(copy.deepcopy(theirs)),
                difference.level(copy.deepcopy(ours)),
            )
            if (reference_level, other) != (theirs, ours):
                used[difference.reason] += 1
                theirs, ours = reference_level, other
    return theirs, ours
