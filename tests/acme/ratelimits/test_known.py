"""The limits that are known, and those that a user writes down."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from certwright.acme.ratelimits import ledger, published
from certwright.acme.ratelimits.published import BadLimits, limits_of, read_limits
from certwright.kit.rate_limit import Rate
from certwright.kube.api.manifests import read_value
from support.tables import table

LETS_ENCRYPT = "https://acme-v02.api.letsencrypt.org/directory"


@pytest.mark.parametrize(
    ("name", "count", "window", "every_s"),
    [
        (published.ORDERS, 300, timedelta(hours=3), 36),
        (published.DOMAIN, 50, timedelta(days=7), 201.6 * 60),
        (published.SET, 5, timedelta(days=7), 33.6 * 3600),
        (published.FAILURES, 5, timedelta(hours=1), 720),
        (published.ACCOUNTS, 10, timedelta(hours=3), 1080),
    ],
)
def test_lets_encrypt_is_as_documented(name: str, count: int, window: timedelta, every_s: float) -> None:
    rate = limits_of(LETS_ENCRYPT, {}).limits[name].rate
    assert (rate.count, rate.window, rate.every / 1e6) == (count, window, every_s)


def test_a_ca_that_nobody_knows_has_no_limits() -> None:
    limits = limits_of("https://ca.example.org:14000/dir", {})
    assert (limits.name, dict(limits.limits)) == ("ca.example.org:14000", {})


FILE = """
limits:
  acme-v02.api.letsencrypt.org:
    newOrders: {count: 600, overrides: {"https://ca/acct/7": 1000}}
    certificatesPerDomain: {window: 3d, refills: false}
    failedValidations: none
    exemptsAri: false
  https://ca.example.org/dir:
    newOrders: {count: 2, window: 10s}
  Other.Example.Org: none
"""


def test_a_file_changes_what_it_names_and_nothing_else() -> None:
    chosen = read_limits(read_value(FILE))
    limits = limits_of(LETS_ENCRYPT, chosen)
    assert limits.limits[published.ORDERS].rate_of("https://ca/acct/7").count == 1000
    assert limits.limits[published.ORDERS].rate_of("another") == Rate(600, timedelta(hours=3))
    assert limits.limits[published.DOMAIN].rate == Rate(50, timedelta(days=3), refills=False)
    assert published.FAILURES not in limits.limits
    assert limits.limits[published.SET].rate.count == 5
    assert (limits.exempts_ari, limits.exempts_renewals) == (False, True)
    assert limits_of("https://ca.example.org/dir", chosen).limits[published.ORDERS].rate.count == 2
    assert not limits_of("https://other.example.org/x", chosen).limits


WRONG = """
limit: {} | the file has an unknown field 'limit'; choose from limits
limits: [] | limits is []; write a mapping there
limits: {ca: 5} | limits.ca is 5; write a mapping there
limits: {ca: {orders: {}}} | limits.ca has an unknown field 'orders'; choose from newOrders,
  certificatesPerDomain, certificatesPerSet, failedValidations, newAccounts, exemptsAri, exemptsRenewals
limits: {ca: {newOrders: {count: 3}}}
  | limits.ca.newOrders has no window; write e.g. {count: 50, window: 168h}
limits: {ca: {newOrders: {count: 0, window: 1h}}}
  | limits.ca.newOrders.count is 0; write a whole number of at least 1, or leave it out
limits: {ca: {newOrders: {count: 1, window: 4x}}}
  | limits.ca.newOrders.window is '4x'; write a duration of at least a second: "3h", "7d"
limits: {ca: {newOrders: {count: 1, window: 1h, refills: "no"}}}
  | limits.ca.newOrders.refills is 'no'; write true or false
limits: {ca: {newOrders: 7}} | limits.ca.newOrders is 7; write a mapping there, or `none`
"""


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "the file is empty; write a mapping there"), *table(WRONG)]
)
def test_what_is_wrong_is_said_with_the_fix(content: Any, sentence: str) -> None:
    with pytest.raises(BadLimits) as wrong:
        read_limits(content)
    assert str(wrong.value) == sentence


@pytest.mark.parametrize(
    ("identifier", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("*.Example.COM", "example.com"),
        ("a.b.github.io", "b.github.io"),
        ("co.uk", "co.uk"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ],
)
def test_what_a_name_counts_for(identifier: str, domain: str) -> None:
    assert ledger.registered_domain(identifier) == domain


def test_a_set_is_the_same_in_any_order_and_case() -> None:
    assert ledger.set_of(["b.example.com", "A.example.com"]) == ledger.set_of(
        ["a.example.com", "B.example.com"]
    )
    assert ledger.set_of(["a.example.com"]) == "a.example.com"
    assert ledger.set_of(["a.example.com", "c.example.com"]) != ledger.set_of(
        ["a.example.com", "b.example.com"]
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (
            "too many certificates (5) already issued for this exact set of identifiers in the last 168h",
            published.SET,
        ),
        (
            'too many certificates (50) already issued for "example.com" in the last 168h0m0s',
            published.DOMAIN,
        ),
        ("too many new orders (300) from this account in the last 3h0m0s", published.ORDERS),
        ('too many failed authorizations (5) for "a.example.com" in the last 1h0m0s', published.FAILURES),
        ("too many new registrations (10) from this IP address in the last 3h0m0s", published.ACCOUNTS),
        ("Service busy; retry later.", None),
    ],
)
def test_which_limit_a_refusal_is_about(text: str, limit: str | None) -> None:
    assert ledger.limit_named(text) == limit


def test_the_moment_in_a_refusal_is_read() -> None:
    text = 'too many … for "Example.com", retry after 2026-02-04 15:12:13 UTC: see https://…'
    moment = ledger.until_named(text)
    assert moment is not None
    assert f"{moment:%Y-%m-%d %H:%M:%S %z}" == "2026-02-04 15:12:13 +0000"
    assert ledger.until_named("retry after 2026-02-34 15:12:13 UTC") is None
    assert ledger.names_in(text) == {"example.com"}
