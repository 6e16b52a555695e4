"""Controllers whose objects make them wait, for servers or computation, are shared by namespaces."""

from __future__ import annotations

from certwright.controllers.wiring import ROWS

WAIT_FOR_SERVERS = {"certificaterequests", "issuers", "orders", "challenges"}
GENERATE_KEYS = {"certificates"}
READ_LARGE_OBJECTS = {"ingress-shim", "gateway-shim", "listenerset"}
RUN_HOOKS = {"deliveries"}


def test_no_namespace_occupies_all_workers_of_these_controllers() -> None:
    assert {
        row.name for row in ROWS if row.is_shared
    } == WAIT_FOR_SERVERS | GENERATE_KEYS | READ_LARGE_OBJECTS | RUN_HOOKS
