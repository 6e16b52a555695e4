import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certwright.app import tls_identity
from certwright.pki.certificates import read_certificate

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def serial(identity: tls_identity.ServingIdentity) -> int:
    return read_certificate(identity.cert_path.read_bytes()).serial_number


def test_a_second_start_uses_what_the_first_one_made(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tmp_path / "pki", host="127.0.0.1", now=NOW)
    before = serial(first)
    second = tls_identity.load_or_make(tmp_path / "pki", host="127.0.0.1", now=NOW + timedelta(days=1))
    assert (second.ca_pem, serial(second)) == (first.ca_pem, before)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    tls_identity.load_or_make(tmp_path / "pki", host="127.0.0.1", now=NOW)
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode) == 0o600


def test_the_certificate_is_renewed_in_time_and_the_ca_stays(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=NOW)
    before = serial(first)
    later = tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=first.renew_at)
    assert later.ca_pem == first.ca_pem
    assert serial(later) != before
    assert later.renew_at > first.renew_at


def test_another_listening_address_gets_into_the_certificate(tmp_path: Path) -> None:
    tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=NOW)
    identity = tls_identity.load_or_make(tmp_path, host="192.0.2.7", now=NOW)
    facts = read_certificate(identity.cert_path.read_bytes())
    assert {"192.0.2.7", "127.0.0.1"} <= set(facts.ip_addresses)
    assert "localhost" in facts.dns_names


def test_files_that_do_not_belong_together_are_made_again(tmp_path: Path) -> None:
    first = tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=NOW)
    first.key_path.write_bytes((tmp_path / "ca.key").read_bytes())
    second = tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=NOW)
    assert second.ca_pem == first.ca_pem
    (tmp_path / "ca.crt").write_bytes(b"rubbish")
    third = tls_identity.load_or_make(tmp_path, host="127.0.0.1", now=NOW)
    assert third.ca_pem != first.ca_pem
    assert (
        read_certificate(third.cert_path.read_bytes()).parsed.issuer
        == read_certificate(third.ca_pem).parsed.subject
    )
