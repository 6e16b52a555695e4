"""docs/reference/annotations.md and conditions.md, from the code's constants and the docstrings below them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from house.reference.reasons import ISSUERS, ISSUING, SETS
from house.reference.tables import GENERATED, table

SOURCE = Path(__file__).parents[3] / "src" / "certwright"
NAME = re.compile(r"(?:[a-z0-9-]+\.)*(?:cert-manager|certwright)\.io/(?!v\d)[a-z0-9-]+")

ANNOTATIONS = f"""# Annotations, labels and finalizers

{GENERATED} Those below `cert-manager.io` mean what they mean in cert-manager; those below
`certwright.io` are beyond it. Set only those on objects that you write yourself (Certificates, Ingresses,
Gateways, issuers, Secrets of your own); certwright maintains the others.
"""
CONDITIONS = f"""# Conditions and reasons

{GENERATED} A condition is an entry of `status.conditions`: its type, `True`, `False` or `Unknown`,
a reason and a message. `certwright status` prints them with the fix.
"""


@cache
def documented(path: Path) -> tuple[tuple[str, str, str], ...]:
    """The string constants of a module or of the enumerations in it: identifier, value, docstring."""
    tree = ast.parse(path.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return tuple(
        constant for body in (tree.body, *(node.body for node in classes)) for constant in _of_body(body)
    )


def _of_body(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    for node, following in zip(body, [*body[1:], None], strict=True):
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value)))
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value)))
            ):
                yield name, value, _docstring(following)


def _docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


@cache
def well_known_names() -> dict[str, str]:
    """The annotations, labels and finalizers that constants of the code name -> docstring."""
    descriptions: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if not NAME.search(path.read_text()):
            continue
        for _, value, text in documented(path):
            if NAME.fullmatch(value):
                descriptions[value] = descriptions.get(value) or text
    return descriptions


def mentioned_names() -> set[str]:
    """All string literals of the code that are such a name."""
    literal = re.compile(rf'"({NAME.pattern})"')
    return {name for path in SOURCE.rglob("*.py") for name in literal.findall(path.read_text())}


def annotation_page() -> str:
    """The text of annotations.md."""
    beyond = {name: text for name, text in well_known_names().items() if "certwright.io/" in name}
    theirs = {name: text for name, text in well_known_names().items() if name not in beyond}
    parts = [ANNOTATIONS]
    for title, names in (("cert-manager's", theirs), ("Beyond cert-manager", beyond)):
        rows = [(f"`{name}`", text) for name, text in sorted(names.items(), key=lambda row: row[0])]
        parts += [f"## {title}\n", table(("name", "meaning"), rows) + "\n"]
    return "\n".join(parts)


_TYPES = (
    "READY",
    "ISSUING",
    "APPROVED",
    "DENIED",
    "INVALID_REQUEST",
    "SECRET_ADOPTED",
    "CERTIFICATE_VERIFIED",
    "CA_KEY_REPLACEMENT",
)


def condition_page() -> str:
    """The text of conditions.md."""
    reasons = {name: (value, text) for name, value, text in documented(SOURCE / "resources/reasons.py")}
    causes = {name: (value, text) for name, value, text in documented(SOURCE / "resources/causes.py")}
    types = [reasons.pop(name) for name in _TYPES] + [causes.pop("FAILURE_CAUSE")]
    del reasons["SOLVERS_NOT_VERIFIED"]  # It is an issuer's.
    parts = [CONDITIONS, "## Types\n", _rows("type", types)]
    issuing = [*reasons.values(), *ISSUING.items()]
    parts += ["## Reasons of certificates and requests\n", _rows("reason", sorted(issuing))]
    parts += [
        "## Reasons of issuers\n\nOf the condition `Ready` of Issuers and ClusterIssuers:\n",
        table(("reason", "issuers", "meaning"), [(f"`{name}`", *row) for name, row in ISSUERS.items()])
        + "\n",
        "Of IssuerSets and ClusterIssuerSets:\n",
        _rows("reason", list(SETS.items())),
    ]
    parts += [
        "## Causes of failures\n\nThe reason of a Certificate's condition `Issuing` after a failure, and of a "
        "request's `FailureCause`. It determines the [next attempt](../backoff.md).\n",
        _rows("reason", [cause for cause in causes.values() if cause[1]]),
    ]
    parts += [
        "## Deliveries\n\nReasons of the condition `Delivered`:\n",
        _rows("reason", _of_delivery("permissions")),
    ]
    parts += ["Reasons of the condition `Deployed`:\n", _rows("reason", _of_delivery("checks"))]
    return "\n".join(parts)


def _of_delivery(module: str) -> list[tuple[str, str]]:
    path = SOURCE / "controllers" / "deliveries" / f"{module}.py"
    return [(value, text) for _, value, text in documented(path) if text and value.isalpha()]


def _rows(head: str, values: list[tuple[str, str]]) -> str:
    return table((head, "meaning"), [(f"`{value}`", text) for value, text in values]) + "\n"
