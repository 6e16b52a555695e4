"""Output: text for people, objects as JSON or YAML, and the two forms of a status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from certwright.cli import lazy
from certwright.kube.util.encoding import visible


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for people. What objects, files and servers contain is printed through this: a terminal
    obeys no control character in it."""
    click.echo(visible(str(text)), err=err, nl=nl)


def echo_lines(lines: Iterable[str]) -> None:
    """Print each text in one line: a line break in a field must not forge one."""
    for line in lines:
        echo(line.replace("\n", "\\n"))


class StatusView(msgspec.Struct, frozen=True):
    """The status of an object: as lines of text, and as one JSON object."""

    lines: Sequence[str]
    content: dict[str, Any]


def print_content(content: Any, form: str) -> None:
    """Print a value as `json` or `yaml`; times are RFC 3339."""
    plain = msgspec.to_builtins(content)
    if form == "json":
        echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    else:
        click.echo(lazy.yaml_writer.write_yaml(plain), nl=False)
