"""The server's own CA and certificate, and their renewal: nothing of before is cut off."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certwright import app
from certwright.app import shared_files, tls_identity
from certwright.app.options import StartError
from certwright.kube.api.core import CONFIG_MAPS, NAMESPACES
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.pki.certificates import CertificateFacts, read_certificate
from support.world import eventually

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNTIL_RENEWAL = tls_identity.CA_LIFE * 2 / 3
MINUTE = timedelta(minutes=1)


def made(
    folder: Path, now: datetime = NOW, host: str = "127.0.0.1", sans: tuple[str, ...] = ()
) -> tls_identity.ServingIdentity:
    """The CA and the certificate of a server that starts at this time."""
    return tls_identity.load_or_make(tls_identity.Settings(folder, host, sans), now=now)


def serial(identity: tls_identity.ServingIdentity) -> int:
    return read_certificate(identity.cert_path.read_bytes()).serial_number


def test_a_second_start_uses_what_the_first_one_made(tmp_path: Path) -> None:
    first = made(tmp_path / "pki")
    before = serial(first)
    second = made(tmp_path / "pki", NOW + timedelta(days=1))
    assert (second.ca_pem, serial(second)) == (first.ca_pem, before)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    made(tmp_path / "pki")
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode) == 0o600


def test_the_certificate_is_renewed_in_time_and_the_ca_stays(tmp_path: Path) -> None:
    first = made(tmp_path)
    before = serial(first)
    later = made(tmp_path, first.renew_at)
    assert later.ca_pem == first.ca_pem
    assert serial(later) != before
    assert later.renew_at > first.renew_at


def test_another_listening_address_gets_into_the_certificate(tmp_path: Path) -> None:
    made(tmp_path)
    identity = made(tmp_path, host="192.0.2.7")
    facts = read_certificate(identity.cert_path.read_bytes())
    assert {"192.0.2.7", "127.0.0.1"} <= set(facts.ip_addresses)
    assert "localhost" in facts.dns_names


def test_files_that_do_not_belong_together_are_made_again(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.key_path.write_bytes((tmp_path / "ca.key").read_bytes())
    second = made(tmp_path)
    assert second.ca_pem == first.ca_pem
    (tmp_path / "ca.crt").write_bytes(b"rubbish")
    third = made(tmp_path)
    assert third.ca_pem != first.ca_pem
    assert (
        read_certificate(third.cert_path.read_bytes()).parsed.issuer
        == read_certificate(third.ca_pem).parsed.subject
    )


def test_a_clock_that_was_wrong_for_a_while_does_not_cost_the_ca(tmp_path: Path) -> None:
    first = made(tmp_path)
    later = made(tmp_path, NOW + timedelta(days=4000))
    assert later.ca_pem != first.ca_pem
    again = made(tmp_path, NOW + timedelta(days=1))
    assert again.ca_pem == first.ca_pem
    facts = read_certificate(again.cert_path.read_bytes())
    assert facts.parsed.issuer == read_certificate(first.ca_pem).parsed.subject
    assert facts.not_before <= NOW + timedelta(days=1)
    # Without a former CA a new one is made: one that is not valid yet serves no client.
    (tmp_path / "ca.former.crt").unlink()
    ahead = made(tmp_path, NOW + timedelta(days=4000))
    (tmp_path / "ca.former.crt").unlink()
    fresh = made(tmp_path)
    assert fresh.ca_pem not in (first.ca_pem, ahead.ca_pem)


def test_every_address_is_those_of_the_machine_and_further_names_are_added(tmp_path: Path) -> None:
    sans = ("pki.example.com", "203.0.113.9")
    identity = made(tmp_path, NOW, "0.0.0.0", sans)  # noqa: S104
    facts = read_certificate(identity.cert_path.read_bytes())
    assert {"pki.example.com", "localhost"} <= set(facts.dns_names)
    assert {"203.0.113.9", "127.0.0.1", *tls_identity.own_addresses()} <= set(facts.ip_addresses)
    assert "0.0.0.0" not in facts.ip_addresses  # noqa: S104


@pytest.mark.parametrize("behind", [timedelta(days=1), timedelta(days=20_000)])
def test_a_clock_that_is_behind_makes_no_new_ca(tmp_path: Path, behind: timedelta) -> None:
    first = made(tmp_path)
    assert made(tmp_path, NOW - behind).ca_pem == first.ca_pem


# --- renewal of the CA ------------------------------------------------------------------------------------


def signs(ca_pem: bytes, identity: tls_identity.ServingIdentity) -> CertificateFacts:
    """The serving certificate. Raises `InvalidSignature` if the CA has not signed it."""
    facts = read_certificate(identity.cert_path.read_bytes())
    facts.parsed.verify_directly_issued_by(read_certificate(ca_pem).parsed)
    return facts


def test_the_renewed_ca_has_the_key_and_vouches_for_what_was_signed_before(tmp_path: Path) -> None:
    first = made(tmp_path)
    served, key = first.cert_path.read_bytes(), (tmp_path / "ca.key").read_bytes()
    later = NOW + UNTIL_RENEWAL
    second = made(tmp_path, later)
    before, after = read_certificate(first.ca_pem), read_certificate(second.ca_pem)
    assert (tmp_path / "ca.key").read_bytes() == key
    assert after.parsed.subject == before.parsed.subject
    assert list(after.parsed.extensions) == list(before.parsed.extensions)
    assert after.serial_number != before.serial_number
    # The overlap: more than three years in which both are valid.
    assert after.not_before < later < before.not_after - timedelta(days=3 * 365)
    assert after.not_after - later > UNTIL_RENEWAL
    # Clients that trust either accept the certificate of before and the next one.
    read_certificate(served).parsed.verify_directly_issued_by(after.parsed)
    assert signs(first.ca_pem, second) == signs(second.ca_pem, second)


def test_the_front_end_is_due_when_its_ca_is(tmp_path: Path) -> None:
    first = made(tmp_path)
    ca = read_certificate(first.ca_pem)
    due = ca.not_after - (ca.not_after - ca.not_before) / 3
    shortly_before = made(tmp_path, due - timedelta(days=1))
    assert shortly_before.ca_pem == first.ca_pem
    assert shortly_before.renew_at == due


def test_servers_that_share_the_ca_renew_it_to_the_same_bytes(tmp_path: Path) -> None:
    first = made(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    later = NOW + UNTIL_RENEWAL
    renewed = made(tmp_path / "a", later)
    other = made(tmp_path / "b", later + timedelta(days=40))
    assert renewed.ca_pem == other.ca_pem != first.ca_pem


async def test_a_server_starts_beside_the_ca_of_before_in_the_store_and_not_beside_another(
    tmp_path: Path,
) -> None:
    store, folder = MemoryStore(), tmp_path / "a"

    def make(folder: Path, now: datetime) -> None:
        made(folder / "pki", now)
        for name in ("sa.key", "admin.token"):
            (folder / "pki" / name).write_text("the same")

    await shared_files.share(store, folder, lambda: make(folder, NOW))
    make(folder, NOW + UNTIL_RENEWAL)
    await shared_files.share(store, folder, lambda: None)
    make(tmp_path / "b", NOW)
    with pytest.raises(StartError, match="is not the one that the servers on this store share"):
        await shared_files.share(store, tmp_path / "b", lambda: None)


def test_a_ca_that_has_ended_is_renewed_from_now_on(tmp_path: Path) -> None:
    first = made(tmp_path)
    later = NOW + 2 * tls_identity.CA_LIFE
    second = made(tmp_path, later)
    assert read_certificate(second.ca_pem).not_after > later + UNTIL_RENEWAL
    assert signs(first.ca_pem, second).not_after > later


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(connect(load(kubeconfig)), user_agent="test")
    try:
        yield client
    finally:
        await client.close()


async def test_a_running_server_renews_its_ca_and_kubeconfigs_of_before_go_on(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", TestClock(datetime.now(UTC))
    # Due in a few minutes; an hour is what certificates are backdated.
    former_start = clock.now() + timedelta(hours=1) + 5 * MINUTE - UNTIL_RENEWAL
    before = made(data / "pki", former_start).ca_pem
    none = app.ControllerOptions(controllers="")
    options = app.ServeOptions(data_dir=data, port=0, controllers=none)
    server = await app.start_server(options, clock=clock)
    try:
        former = tmp_path / "former"
        shutil.copy(server.kubeconfig, former)
        assert load(former).ca_pem == before

        async def is_renewed() -> bool:
            clock.advance(MINUTE)
            return load(server.kubeconfig).ca_pem != before

        await eventually(is_renewed)
        after = load(server.kubeconfig).ca_pem
        assert (data / "pki/ca.crt").read_bytes() == after
        for kubeconfig in (former, server.kubeconfig):
            async with connected(kubeconfig) as client:
                assert (await client.list(NAMESPACES)).items
    finally:
        await server.close()
    server = await app.start_server(options, clock=clock)
    try:
        async with connected(server.kubeconfig) as client:

            async def is_published() -> bool:
                config_map = await client.get(CONFIG_MAPS, "kube-root-ca.crt", "default")
                return config_map.data["ca.crt"].encode() == after

            await eventually(is_published)
    finally:
        await server.close()
