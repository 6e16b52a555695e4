"""The wall clock of a server is set back by a day: it goes on, and starts again, as if it had not been."""

from __future__ import annotations

import sys
from pathlib import Path

from certwright.kube.util.files import write_atomically
from faults.server import CONFIG_MAPS, Server, config_map

_A_DAY_S = 86_400


async def test_a_clock_that_is_set_back_stops_nothing(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("0")
    program = Path(__file__).with_name("shifted_serve.py")
    server = Server(tmp_path, through=(sys.executable, str(program), str(offset)))
    try:
        await server.start()
        before = await server.ask("POST", CONFIG_MAPS, config_map("before"))
        write_atomically(offset, str(-_A_DAY_S).encode())  # it may be read at this moment
        after = await server.ask("POST", CONFIG_MAPS, config_map("after"))
        assert after.status == 201, after.text
        old, new = before.json["metadata"], after.json["metadata"]
        assert new["creationTimestamp"] < old["creationTimestamp"]
        assert int(new["resourceVersion"]) > int(old["resourceVersion"])
        assert (await server.ask("GET", "/readyz")).status == 200
        server.kill()
        await server.start()
        changed = await server.ask("PUT", f"{CONFIG_MAPS}/before", config_map("before", n="1"))
        assert changed.status == 200, changed.text
        assert int(changed.json["metadata"]["resourceVersion"]) > int(new["resourceVersion"])
    finally:
        await server.close()
