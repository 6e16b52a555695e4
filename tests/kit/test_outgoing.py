"""The rules for requests to servers that objects name."""

from __future__ import annotations

import pytest

from certwright.kit.outgoing import (
    HTTPS_ONLY,
    BadUrl,
    NotAllowed,
    ServerRules,
    parse_server_url,
    place_of,
    quote,
)

WITH_HTTP = ServerRules(allow_http=True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "is not a URL of a server"),
        ("ftp://ca.example/dir", "is not a URL of a server"),
        ("ca.example/dir", "is not a URL of a server"),
        ("https://", "is not a URL of a server"),
        ("https:///dir", "is not a URL of a server"),
        ("", "is not a URL of a server"),
        ("https://[::1/dir", "is not a URL"),
        ("https://ca.example:port/", "is not a URL"),
        ("https://ca.example/dir\r\nX-Evil: 1", "a control character"),
        ("https://ca.example/d ir", "a space"),
        ("https://ca.example/\u202etxt", "a control character"),
        ("https://user:word@ca.example/", "a user name or a password"),
        ("https://@ca.example/", "a user name or a password"),
        ("https://ca.example/dir#part", "a fragment"),
        ("https://ca.example/dir#", "a fragment"),
    ],
)
def test_what_is_not_a_url_of_a_server(url: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words):
        parse_server_url(url)
    for rules in (HTTPS_ONLY, WITH_HTTP):
        with pytest.raises(NotAllowed, match=words):
            rules.check(url)


def test_http_needs_the_flag() -> None:
    for url in ("https://ca.example/dir?x=1", "HTTPS://ca.example:8443/dir", "https://[2001:db8::1]/"):
        HTTPS_ONLY.check(url)
    with pytest.raises(NotAllowed, match="--allow-http-servers"):
        HTTPS_ONLY.check("http://ca.example/dir")
    WITH_HTTP.check("http://ca.example/dir")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/other", "https://ca.example/other"),
        ("https://CA.example/other", "https://CA.example/other"),
        ("https://ca.example:8443/", "https://ca.example:8443/"),
        ("https://internal.example/SECRET", ""),
        ("//internal.example/SECRET", ""),
        ("https://ca.example@internal.example/SECRET", ""),
        ("http://ca.example/SECRET", ""),
        ("file:///SECRET", ""),
        ("https://[::1/SECRET", ""),
    ],
)
def test_redirects_stay_on_the_host_and_on_https(location: str, target: str) -> None:
    for rules in (HTTPS_ONLY, WITH_HTTP):
        if target:
            assert rules.redirect("https://ca.example/dir", location) == target
            continue
        with pytest.raises(NotAllowed) as caught:
            rules.redirect("https://ca.example/dir", location)
        # The Location of an internal server is its own text.
        assert "SECRET" not in str(caught.value)
        assert "internal" not in str(caught.value)


def test_http_may_lead_to_https_of_the_same_host() -> None:
    assert WITH_HTTP.redirect("http://ca.example/dir", "https://ca.example/dir") == "https://ca.example/dir"
    assert WITH_HTTP.redirect("http://ca.example/dir", "/x") == "http://ca.example/x"


def test_what_is_quoted_is_one_bounded_line() -> None:
    assert quote("a\x1b[31m\nb\u202ec\u2028d") == "a [31m b c d"
    assert quote("x" * 501) == "x" * 499 + "…"
    assert len(quote("\n" * 10**6)) == 0


def test_a_url_is_shown_without_what_a_server_may_have_put_there() -> None:
    assert place_of("https://u:p@ca.example:1/dir?token=SECRET#x") == "https://ca.example:1/dir"
    assert len(place_of("https://ca.example/" + "a" * 1000)) == 200
