"""CyberArk's own client judges the fake: what it gets from the fake, ours gets too, and the reverse."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from certwright.pki.certificates import read_chain
from certwright.resources.names import VENAFI_PICKUP_ID
from issuers.venafi.conftest import PLAN, VenafiSetup, annotated
from support.venafi.state import API_KEY, TSG

_PYTHON = Path(__file__).parents[3] / ".venv-vcert" / "bin" / "python"
_SCRIPT = Path(__file__).parent / "drive_vcert.py"


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not _PYTHON.exists():
        reason = "vcert is not installed here: make vcert"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(f"{reason}, and CERTWRIGHT_REQUIRE_REAL=1 demands it")
        pytest.skip(reason)


async def vcert(setup: VenafiSetup, folder: Path, **given: str) -> dict[str, Any]:
    """What vcert returns for this order, or for this pickup ID."""
    (folder / "ca.crt").write_bytes(setup.fake.ca_pem)
    product = setup.view.uid.removeprefix("uid-").split()[0]
    settings = {
        "product": product,
        "url": setup.fake.ngts_url if product == "ngts" else setup.fake.url,
        "token_url": setup.fake.token_url,
        "ca": str(folder / "ca.crt"),
        "api_key": API_KEY,
        "tsg": TSG,
        "zone": setup.spec.zone,
        "name": "web.example.org",
        **given,
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(_PYTHON), str(_SCRIPT), stdin=pipe, stdout=pipe, stderr=pipe
    )
    answer, complaints = await process.communicate(json.dumps(settings).encode())
    assert process.returncode == 0, complaints.decode()
    document: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return document


async def test_both_get_the_same_certificate_for_an_order_of_vcert(
    setup: VenafiSetup, tmp_path: Path
) -> None:
    signing = setup.request(PLAN)
    result = await vcert(setup, tmp_path, csr=signing.request.spec.request.decode())
    ours = await setup.signed(annotated(signing, {VENAFI_PICKUP_ID: result["id"]}))
    assert len(setup.fake.state.placed) == 1
    theirs = read_chain("\n".join(result["chain"]).encode())
    assert read_chain(ours.chain_pem + ours.ca_pem) == theirs


async def test_both_get_the_same_certificate_for_an_order_of_ours(setup: VenafiSetup, tmp_path: Path) -> None:
    ours = await setup.issue()
    (pickup_id,) = setup.fake.state.placed
    result = await vcert(setup, tmp_path, id=pickup_id)
    assert read_chain("\n".join(result["chain"]).encode()) == read_chain(ours.chain_pem + ours.ca_pem)


@pytest.mark.parametrize("setup", ["tpp", "cloud", "ngts"], indirect=True)
async def test_vcert_accepts_a_pending_order(setup: VenafiSetup, tmp_path: Path) -> None:
    setup.fake.state.polls = 1
    signing = setup.request(PLAN)
    result = await vcert(setup, tmp_path, csr=signing.request.spec.request.decode())
    assert len(result["chain"]) == 3
