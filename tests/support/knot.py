"""Knot DNS on loopback: zones that can be updated with TSIG."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from support.programs import free_port, spawn, stop, wait_for
from support.questions import answers
from support.real import require

TSIG_SECRET: Final = "NTgwODMzMzU0MTZhYmE0NTk0MzI3NDk2NzY2Zjk1YTA="
_ZONE = """\
$TTL 60
@ SOA ns1 admin 1 3600 600 86400 1
@ NS ns1
ns1 A 127.0.0.1
"""
_CONFIGURATION = """\
server:
  listen: 127.0.0.1@{port}
  rundir: {folder}
  user: {user}
database:
  storage: {folder}
log:
  - target: stderr
    any: info
key:
  - id: certwright
    algorithm: hmac-sha256
    secret: {secret}
acl:
  - id: updates
    key: certwright
    action: update
template:
  - id: default
    storage: {folder}
    file: "%s.zone"
    acl: updates
    zonefile-sync: -1
    journal-content: all
zone:
{zones}
"""


@dataclass(frozen=True, slots=True)
class Knot:
    """A Knot that is running; the TSIG key `certwright` (hmac-sha256) may update its zones."""

    port: int

    @property
    def address(self) -> str:
        """Host and port, as name servers are written."""
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def running_knot(zones: Sequence[str] = ("example.org",)) -> Iterator[Knot]:
    """A Knot with these zones."""
    program = require("knotd", debian="knot")
    with tempfile.TemporaryDirectory(prefix="knot-") as name:
        folder, port = Path(name), free_port()
        for zone in zones:
            (folder / f"{zone}.zone").write_text(f"$ORIGIN {zone}.\n{_ZONE}")
        text = _CONFIGURATION.format(
            port=port,
            folder=folder,
            user=folder.owner(),
            secret=TSIG_SECRET,
            zones="\n".join(f"  - domain: {zone}" for zone in zones),
        )
        (folder / "knot.conf").write_text(text)
        log = folder / "log"
        with log.open("wb") as out:
            process = spawn([program, "-c", str(folder / "knot.conf")], out)
            try:
                for zone in zones:
                    wait_for(partial(answers, port, zone, "SOA"), process, log, what=f"have the zone {zone}")
                yield Knot(port)
            finally:
                stop(process)
