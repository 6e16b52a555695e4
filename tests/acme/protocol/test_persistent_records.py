"""The TXT record of dns-persist-01: which values authorize which account."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from certwright.acme.protocol.challenges import PersistentRecord

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ACCOUNT = "https://ca.example/acct/1"
RECORD = PersistentRecord(("ca.example", "ca.example.net"), ACCOUNT)


def test_the_value_to_create_names_the_ca_and_the_account() -> None:
    assert RECORD.value(wildcard=False) == f"ca.example; accounturi={ACCOUNT}"
    assert RECORD.value(wildcard=True) == f"ca.example; accounturi={ACCOUNT}; policy=wildcard"


@pytest.mark.parametrize(
    ("value", "plain", "wildcard"),
    [
        (RECORD.value(wildcard=False), True, False),
        (RECORD.value(wildcard=True), True, True),
        (f"CA.example.net;AccountURI={ACCOUNT} ;\tPolicy=WildCard", True, True),
        (f"ca.example; unknown=1; accounturi={ACCOUNT}; policy=other", True, False),
        (f"ca.example; accounturi={ACCOUNT}; persistUntil={int(NOW.timestamp()) + 1}", True, False),
        (f"ca.example; accounturi={ACCOUNT}; persistUntil={int(NOW.timestamp()) - 1}", False, False),
        (f"ca.example; accounturi={ACCOUNT}; persistUntil=soon", False, False),
        (f"other.example; accounturi={ACCOUNT}", False, False),
        ("ca.example; accounturi=https://ca.example/acct/2", False, False),
        ("ca.example", False, False),
        ("", False, False),
    ],
)
def test_a_value_authorizes(value: str, plain: bool, wildcard: bool) -> None:
    assert RECORD.is_authorized_by(["other", value], wildcard=False, now=NOW) == plain
    assert RECORD.is_authorized_by([value], wildcard=True, now=NOW) == wildcard


def test_without_names_of_the_ca_only_the_account_counts() -> None:
    record = PersistentRecord((), ACCOUNT)
    assert record.is_authorized_by([f"any.example; accounturi={ACCOUNT}"], wildcard=False, now=NOW)
