"""Tables of cases as text: one row per case, its values in YAML as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.api.manifests import read_value


def table(text: str) -> list[Any]:
    """The cases of rows such as `algorithm: RSA, size: 256 | cell | cell`. The first cell is a mapping
    without its braces, the others are text. An indented line continues the one above."""
    cases = []
    for row in text.strip("\n").replace("\n  ", " ").splitlines():
        first, *cells = (cell.strip() for cell in row.split(" | "))
        cases.append(pytest.param(read_value(f"{{{first}}}"), *cells, id=first))
    return cases
