"""Objects as JSON or YAML, and the two forms of a status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from certwright.cli import lazy


class StatusView(msgspec.Struct, frozen=True):
    """The status of an object: as lines of text, and as one JSON object."""

    lines: Sequence[str]
    content: dict[str, Any]


def print_content(content: Any, form: str) -> None:
    """Print a value as `json` or `yaml`; times are RFC 3339."""
    plain = msgspec.to_builtins(content)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2))
    else:
        click.echo(lazy.yaml_writer.write_yaml(plain), nl=False)
