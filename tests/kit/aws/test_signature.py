"""Signature Version 4, compared with the test suite that AWS published and with botocore's signatures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from certwright.kit.aws.service import AwsCredentials, AwsRequest, SigningScope, sign

NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
KEYS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqT"
    "flfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9"
    "HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYv"
    "KTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
HOST = "https://example.amazonaws.com"
LETTERS = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FORM = (("content-type", "application/x-www-form-urlencoded"),)

VECTORS = {
    "get-vanilla": (
        AwsRequest("GET", f"{HOST}/"),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-vanilla-query-order-key-case": (
        AwsRequest("GET", f"{HOST}/?Param2=value2&Param1=value1"),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "two values of one name": (
        AwsRequest("GET", f"{HOST}/?Param1=value2&Param1=Value1"),
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
    ),
    "get-vanilla-query-unreserved": (
        AwsRequest("GET", f"{HOST}/?{LETTERS}={LETTERS}"),
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    "post-x-www-form-urlencoded": (
        AwsRequest("POST", f"{HOST}/", FORM, b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "a path is encoded twice (botocore)": (
        AwsRequest("GET", f"{HOST}/%E1%88%B4"),
        "697b34846207a3f72246f99d74ae1ee4fe54f44bb06730c58a0d339eb079596d",
    ),
    "a value with a space and a slash, and an empty one (botocore)": (
        AwsRequest("GET", f"{HOST}/?a=b%20c%2Fd&e="),
        "ab9987c66b23029171b550c30d91510be3239a096b3682fce524ea782caa8702",
    ),
    "a port (botocore)": (
        AwsRequest(
            "GET",
            "http://127.0.0.1:4566/2013-04-01/hostedzone/Z1/rrset?name=_acme-challenge.a.example.org.&type=TXT",
        ),
        "a83c2923232331f4f784cb899ee21ef9da94217fabece65f1ff849eaeb3bbe38",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_signature_is_the_published_one(name: str) -> None:
    request, expected = VECTORS[name]
    assert signature_of(sign(request, KEYS, SigningScope("service", "us-east-1"), NOW)) == expected


def test_a_session_token_is_signed() -> None:
    # post-sts-header-before
    credentials = AwsCredentials(KEYS.access_key_id, KEYS.secret_access_key, TOKEN)
    signed = sign(AwsRequest("POST", f"{HOST}/"), credentials, SigningScope("service", "us-east-1"), NOW)
    assert signature_of(signed) == "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
    assert dict(signed.headers)["x-amz-security-token"] == TOKEN


def test_the_example_of_the_user_guide() -> None:
    headers = (("content-type", "application/x-www-form-urlencoded; charset=utf-8"),)
    request = AwsRequest(
        "GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", headers, b""
    )
    signed = sign(request, KEYS, SigningScope("iam", "us-east-1"), NOW)
    assert dict(signed.headers)["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_no_secret_is_shown() -> None:
    shown = repr(AwsCredentials("AKID", "the-secret", "the-token"))
    assert "the-secret" not in shown
    assert "the-token" not in shown


def signature_of(request: AwsRequest) -> str:
    """The signature in the authorization header."""
    return dict(request.headers)["authorization"].rpartition("Signature=")[2]
