"""Controllers whose objects name servers of a tenant's choice are shared by namespaces."""

from __future__ import annotations

from certwright.controllers.wiring import ROWS

WAIT_FOR_SERVERS = {"certificaterequests", "issuers", "orders", "challenges"}
READ_LARGE_OBJECTS = {"ingress-shim", "gateway-shim", "listenerset"}


def test_no_namespace_occupies_all_workers_of_these_controllers() -> None:
    assert {row.name for row in ROWS if row.is_shared} == WAIT_FOR_SERVERS | READ_LARGE_OBJECTS
