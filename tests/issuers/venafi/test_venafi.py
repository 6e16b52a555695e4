"""The `venafi` issuer of each product, with a fake server that CyberArk's own client accepts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from certwright.issuers.contract import Pending, Signed
from certwright.issuers.venafi.issuer import STARTED
from certwright.pki.certificates import read_certificate, read_chain
from certwright.resources.names import VENAFI_PICKUP_ID
from issuers.venafi.conftest import VenafiSetup, annotated


async def test_a_server_that_works_is_ready_in_cert_managers_words(setup: VenafiSetup) -> None:
    checked = await setup.issuer.check(setup.view, setup.tools)
    assert (checked.ready, checked.reason, checked.message) == (True, STARTED, STARTED)


async def test_the_chain_leaves_the_root_out_and_the_root_is_the_ca(setup: VenafiSetup) -> None:
    outcome = await setup.issue()
    leaf, issuing = read_chain(outcome.chain_pem)
    assert leaf.dns_names == ("web.example.org", "example.org")
    assert abs(leaf.not_after - setup.now - timedelta(hours=24)) < timedelta(seconds=3)
    assert issuing.common_name == "Fake Venafi Issuing"
    assert read_certificate(outcome.ca_pem).common_name == "Fake Venafi Root"


async def test_a_certificate_costs_three_calls_and_all_of_them_one_login(setup: VenafiSetup) -> None:
    await setup.issue()
    before = setup.fake.state.calls["all"]
    assert before <= 6
    await asyncio.gather(*(setup.issue() for _ in range(1)))
    assert setup.fake.state.calls["all"] - before == 3


async def test_an_order_that_is_pending_is_polled_and_placed_once(setup: VenafiSetup) -> None:
    setup.fake.state.polls = 2
    signing, outcome = await setup.process(setup.request())
    assert isinstance(outcome, Pending)
    assert (outcome.reason, outcome.is_taken) == ("IssuancePending", True)
    assert outcome.retry_after == timedelta(seconds=2)
    setup.now += timedelta(hours=1)
    signing, outcome = await setup.process(signing)
    assert isinstance(outcome, Pending)
    assert outcome.retry_after == timedelta(minutes=5)
    _, outcome = await setup.process(signing)
    assert isinstance(outcome, Signed)
    assert len(setup.fake.state.placed) == 1


async def test_a_crash_after_the_pickup_id_is_saved_orders_nothing_twice(setup: VenafiSetup) -> None:
    setup.fake.state.polls = 2
    signing, _ = await setup.process(setup.request())
    setup.crash()
    signing, outcome = await setup.process(signing)
    assert isinstance(outcome, Pending)
    setup.crash()
    _, outcome = await setup.process(signing)
    assert isinstance(outcome, Signed)
    assert len(setup.fake.state.placed) == 1


async def test_an_annotation_that_could_not_be_written_orders_nothing_twice(setup: VenafiSetup) -> None:
    signing = setup.request()
    first = await setup.issuer.sign(setup.view, signing, setup.tools)
    second = await setup.issuer.sign(setup.view, signing, setup.tools)
    assert isinstance(first, Pending)
    assert isinstance(second, Pending)
    assert first.annotations == second.annotations
    await setup.signed(annotated(signing, dict(first.annotations)))
    assert len(setup.fake.state.placed) == 1


async def test_tpp_saves_its_id_before_the_order_and_recovers_from_a_crash_between(tpp: VenafiSetup) -> None:
    signing = tpp.request()
    saved = await tpp.issuer.sign(tpp.view, signing, tpp.tools)
    assert isinstance(saved, Pending)
    assert saved.annotations[VENAFI_PICKUP_ID] == "\\VED\\Policy\\Web\\web"
    assert not tpp.fake.state.placed
    tpp.crash()
    await tpp.signed(annotated(signing, dict(saved.annotations)))
    assert len(tpp.fake.state.placed) == 1


async def test_tpp_replaces_the_certificate_of_an_earlier_request(tpp: VenafiSetup) -> None:
    await tpp.issue()
    tpp.crash()
    await tpp.issue()
    assert len(tpp.fake.state.placed) == 2


@pytest.mark.parametrize("pickup_id", ["..", "a/b", "nonsense", "\\VED\\Policy\\Other\\x"])
async def test_a_pickup_id_of_no_order_is_replaced(setup: VenafiSetup, pickup_id: str) -> None:
    await setup.signed(annotated(setup.request(), {VENAFI_PICKUP_ID: pickup_id}))
    assert len(setup.fake.state.placed) == 1
