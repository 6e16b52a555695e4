"""A clean machine for each page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from howto.host import Host, running


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A machine of its own, where certwright is installed and has not run."""
    folder = tmp_path / "machine"
    folder.mkdir()
    with running(folder) as host:
        yield host
