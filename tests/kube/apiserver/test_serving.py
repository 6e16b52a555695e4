import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certwright.app import tls_identity
from certwright.pki.certificates import read_certificate

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def serial(identity: tls_identity.ServingIdentity) -> int:
    return read_certificate(identity.cert_path.read_bytes()).serial_number


def test_a_second_start_uses_what_the_first_one_made(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tls_identity.Settings(tmp_path / "pki", "127.0.0.1"), now=NOW)
    before = serial(first)
    second = tls_identity.load_or_make(
        tls_identity.Settings(tmp_path / "pki", "127.0.0.1"), now=NOW + timedelta(days=1)
    )
    assert (second.ca_pem, serial(second)) == (first.ca_pem, before)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    tls_identity.load_or_make(tls_identity.Settings(tmp_path / "pki", "127.0.0.1"), now=NOW)
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode) == 0o600


def test_the_certificate_is_renewed_in_time_and_the_ca_stays(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=NOW)
    before = serial(first)
    later = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=first.renew_at)
    assert later.ca_pem == first.ca_pem
    assert serial(later) != before
    assert later.renew_at > first.renew_at


def test_another_listening_address_gets_into_the_certificate(tmp_path: Path) -> None:
    tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=NOW)
    identity = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "192.0.2.7"), now=NOW)
    facts = read_certificate(identity.cert_path.read_bytes())
    assert {"192.0.2.7", "127.0.0.1"} <= set(facts.ip_addresses)
    assert "localhost" in facts.dns_names


def test_files_that_do_not_belong_together_are_made_again(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=NOW)
    first.key_path.write_bytes((tmp_path / "ca.key").read_bytes())
    second = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=NOW)
    assert second.ca_pem == first.ca_pem
    (tmp_path / "ca.crt").write_bytes(b"rubbish")
    third = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "127.0.0.1"), now=NOW)
    assert third.ca_pem != first.ca_pem
    assert (
        read_certificate(third.cert_path.read_bytes()).parsed.issuer
        == read_certificate(third.ca_pem).parsed.subject
    )


def test_a_clock_that_was_wrong_for_a_while_does_not_cost_the_ca(tmp_path: Path) -> None:
    settings = tls_identity.Settings(tmp_path, "127.0.0.1")
    first = tls_identity.load_or_make(settings, now=NOW)
    later = tls_identity.load_or_make(settings, now=NOW + timedelta(days=4000))
    assert later.ca_pem != first.ca_pem
    again = tls_identity.load_or_make(settings, now=NOW + timedelta(days=1))
    assert again.ca_pem == first.ca_pem
    facts = read_certificate(again.cert_path.read_bytes())
    assert facts.parsed.issuer == read_certificate(first.ca_pem).parsed.subject
    assert facts.not_before <= NOW + timedelta(days=1)
    # Without a former CA a new one is made: one that is not valid yet serves no client.
    (tmp_path / "ca.former.crt").unlink()
    ahead = tls_identity.load_or_make(settings, now=NOW + timedelta(days=4000))
    (tmp_path / "ca.former.crt").unlink()
    fresh = tls_identity.load_or_make(settings, now=NOW)
    assert fresh.ca_pem not in (first.ca_pem, ahead.ca_pem)


def test_every_address_is_those_of_the_machine_and_further_names_are_added(tmp_path: Path) -> None:
    sans = ("pki.example.com", "203.0.113.9")
    identity = tls_identity.load_or_make(tls_identity.Settings(tmp_path, "0.0.0.0", sans), now=NOW)  # noqa: S104
    facts = read_certificate(identity.cert_path.read_bytes())
    assert {"pki.example.com", "localhost"} <= set(facts.dns_names)
    assert {"203.0.113.9", "127.0.0.1", *tls_identity.own_addresses()} <= set(facts.ip_addresses)
    assert "0.0.0.0" not in facts.ip_addresses  # noqa: S104


@pytest.mark.parametrize("behind", [timedelta(days=1), timedelta(days=20_000)])
def test_a_clock_that_is_behind_makes_no_new_ca(tmp_path: Path, behind: timedelta) -> None:
    settings = tls_identity.Settings(tmp_path, "127.0.0.1")
    first = tls_identity.load_or_make(settings, now=NOW)
    assert tls_identity.load_or_make(settings, now=NOW - behind).ca_pem == first.ca_pem
