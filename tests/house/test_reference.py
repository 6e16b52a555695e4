"""docs/reference/: current, and complete with regard to the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from certwright.controllers import issuer_sets as set_status
from certwright.controllers.certificates import keystores, secret_sync, target, trigger
from house.reference.constants import NAME, SOURCE, documented, mentioned_names, well_known_names
from house.reference.environment import VARIABLES
from house.reference.events import EVENTS
from house.reference.pages import FOLDER, pages
from house.reference.reasons import ISSUERS, ISSUING, SETS


def test_the_pages_are_current_and_none_is_left_over() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == pages(), "run `make docs`"


def test_every_annotation_of_the_code_has_a_docstring() -> None:
    names = well_known_names()
    assert len(names) > 60
    assert not [name for name in sorted(mentioned_names()) if not names.get(name)]


def test_every_environment_variable_of_the_code_is_in_the_table() -> None:
    readers = re.compile(
        r"(?:environ|environment)(?:\.get\(|\.setdefault\(|\[)\"([A-Z_0-9]+)\""
        r"|(?:VARIABLE = |_read\(path, )\"([A-Z_0-9]+)\""
    )
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    read = {name for pair in readers.findall(text) for name in pair if name}
    assert len(read) > 15
    assert read <= VARIABLES.keys()
    assert not [name for name in VARIABLES if f'"{name}"' not in text]


_EVENT_CALLS = {
    "event",
    "add_event",
    "send_event",
    "NewEvent",
    "Blocked",
    "Refused",
    "Waits",
    "_warn",
    "_note",
}
_REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]+)*")
_NO_REASONS = {"Normal", "Warning"}


def reasons_in_calls() -> Iterator[tuple[str, str]]:
    """The literals and constants that calls which record Events have as their reason: module, reason."""
    for path in sorted((SOURCE / "controllers").rglob("*.py")):
        text = path.read_text()
        if not any(f"{call}(" in text for call in _EVENT_CALLS):
            continue
        tree = ast.parse(text)
        constants = dict(imported(tree)) | {name: value for name, value, _ in documented(path)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in _EVENT_CALLS:
                for argument in node.args:
                    match argument:
                        case ast.Constant(value=str(reason)):
                            yield path.name, reason
                        case ast.Name() | ast.Attribute() if (name := ast.unparse(argument)) in constants:
                            yield path.name, constants[name]


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The constants that a module imports from other controllers: as it names them, and their values."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("certwright.controllers"):
            place = SOURCE.parent / (node.module or "").replace(".", "/")
            for alias in node.names:
                if (module := place / f"{alias.name}.py").exists():
                    yield from ((f"{alias.name}.{name}", value) for name, value, _ in documented(module))
                elif (module := place.with_suffix(".py")).exists():
                    yield from ((name, value) for name, value, _ in documented(module) if name == alias.name)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def test_every_reason_of_an_event_is_in_the_table() -> None:
    known = {reason for reason, _ in EVENTS}
    reasons = {(module, text) for module, text in reasons_in_calls() if _REASON.fullmatch(text)}
    assert len(reasons) > 20
    assert not {(module, text) for module, text in reasons if text not in known | _NO_REASONS}


def test_every_reason_in_the_table_is_in_the_code() -> None:
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    of_the_api = {"Invalid", "Forbidden"}
    assert not [reason for reason, _ in EVENTS if f'"{reason}"' not in text and reason not in of_the_api]


_VERDICTS = {
    "Checked": 0,
    "replace": None,
    "AccountError": 0,
    "UnusablePair": 0,
    "_not_now": 0,
    "not_ready": 0,
    "account_error": 1,
}
"""Calls that make the condition of an issuer: which argument is the reason, if it is no keyword."""


def reasons_of_issuers() -> set[str]:
    """The reasons in the code, as literals or constants."""
    reasons = set()
    for path in (*(SOURCE / "issuers").rglob("*.py"), SOURCE / "controllers" / "issuers.py"):
        known = {name: value for name, value, _ in documented(path)} | SHARED
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in _VERDICTS:
                place = _VERDICTS[_name(node.func)]
                given = [word.value for word in node.keywords if word.arg == "reason"]
                given = given if place is None else given or node.args[place : place + 1]
                reasons |= {value for argument in given if (value := _text(argument, known))}
    return reasons


SHARED = {
    name: value
    for module in ("issuers/acme_account.py", "resources/reasons.py", "resources/operator_policy.py")
    for name, value, _ in documented(SOURCE / module)
}


def _text(argument: ast.expr, known: Mapping[str, str]) -> str:
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return known.get(name, "")
    return ""


def test_every_reason_of_an_issuer_is_in_the_table_and_no_other() -> None:
    assert reasons_of_issuers() == ISSUERS.keys()


def test_every_reason_of_a_set_and_of_a_secret_is_in_the_table_and_no_other() -> None:
    assert {set_status.WORKING, set_status.DEGRADED, set_status.NONE_READY} == SETS.keys()
    of_secrets = {secret_sync.CONFLICT, target.REFUSED, keystores.PASSWORD_NOT_FOUND, keystores.FAILED}
    assert {*of_secrets, trigger.WAITING_FOR_ISSUER} == ISSUING.keys()


def test_the_pattern_of_names_excludes_api_versions() -> None:
    assert NAME.fullmatch("acme.cert-manager.io/finalizer")
    assert not NAME.fullmatch("cert-manager.io/v1")
