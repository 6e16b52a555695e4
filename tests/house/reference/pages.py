"""The pages of docs/reference/, rendered from the code and from the tables beside this module."""

from __future__ import annotations

from pathlib import Path

from house.reference import commands, constants, environment, events

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


def pages() -> dict[str, str]:
    """File name -> text."""
    return {
        "annotations.md": constants.annotation_page(),
        "flags.md": commands.page(),
        "conditions.md": constants.condition_page(),
        "environment.md": environment.page(),
        "events.md": events.page(),
    }
