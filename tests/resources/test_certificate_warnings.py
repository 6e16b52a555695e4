"""What a Certificate is accepted with, and warned of."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.api.codec import from_dict
from certwright.resources.certificate_warnings import warnings
from certwright.resources.table import CERTIFICATES


def of(**spec: Any) -> list[str]:
    """The warnings about a Certificate with that spec."""
    content = {"spec": {"secretName": "s", "issuerRef": {"name": "i"}, **spec}}
    return warnings(from_dict(CERTIFICATES, content))


def constraints(**permitted: list[str]) -> dict[str, Any]:
    """The spec of a CA that permits only these names."""
    return {"isCA": True, "nameConstraints": {"permitted": permitted}}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"dnsNames": ["*.*.com"]}, 'spec.dnsNames[0]: "*.*.com" has a * that is not its whole first label'),
        ({"dnsNames": ["a.com", "w*.com"]}, 'spec.dnsNames[1]: "w*.com" has a *'),
        ({"dnsNames": ["exämple.com"]}, 'spec.dnsNames[0]: "exämple.com" is not ASCII'),
        ({"dnsNames": ["a..com"]}, 'spec.dnsNames[0]: "a..com" is not a host name'),
        ({"dnsNames": ["-a.com"]}, 'spec.dnsNames[0]: "-a.com" is not a host name'),
        ({"dnsNames": ["10.0.0.1"]}, 'spec.dnsNames[0]: "10.0.0.1" is an IP address, which clients do not'),
        ({"dnsNames": ["[::1]"]}, "put it under ipAddresses"),
        ({"dnsNames": ["2001:db8::f"]}, "put it under ipAddresses"),
        ({"dnsNames": ["https://a.com"]}, 'spec.dnsNames[0]: "https://a.com" is a URL'),
        ({"dnsNames": ["a.com:443"]}, 'spec.dnsNames[0]: "a.com:443" has a port'),
        ({"dnsNames": ["a." * 127]}, "is longer than 253 characters"),
        ({"dnsNames": ["a.com"] * 2000}, 'spec.dnsNames: "a.com" is listed 2000 times'),
        ({"dnsNames": ["a.com."]}, 'spec.dnsNames[0]: "a.com." ends with a dot, which no client matches'),
        ({"dnsNames": ["a.com", "A.com"]}, 'spec.dnsNames: "a.com" is listed 2 times'),
        ({"ipAddresses": ["::1", "::1"]}, 'spec.ipAddresses: "::1" is listed 2 times'),
        ({"commonName": "a\nb"}, 'spec.commonName: "a\\nb" has characters that are not shown'),
        ({"commonName": "a\u202eb"}, 'spec.commonName: "a\\u202eb" has characters'),
        ({"subject": {"organizations": ["ok", "x\u200b"]}}, "spec.subject.organizations[1]:"),
        (
            {"dnsNames": ["*.b.com", "b.com", "A.b.com"]},
            'spec.dnsNames[2]: "a.b.com" is covered by "*.b.com"',
        ),
        (
            {"duration": "1h", "renewBefore": "59m59s"},
            "spec.renewBefore: each certificate of 1h0m0s",
        ),
        (
            {"renewBeforePercentage": 99},
            "spec.renewBeforePercentage: each certificate of 2160h0m0s",
        ),
        (
            constraints(dnsDomains=["a.com", "http://x.com"]),
            'permitted.dnsDomains[1]: "http://x.com" constrains',
        ),
        (constraints(dnsDomains=["."]), "is not a domain"),
        (constraints(dnsDomains=["10.0.0.1"]), "it is an IP address"),
        (constraints(uriDomains=["example.com:443"]), "it has a port"),
        (constraints(uriDomains=["[::1]"]), "it is an IP address"),
        (constraints(emailAddresses=["@a.com"]), 'matches no address: write "a.com"'),
        (constraints(emailAddresses=["*@a.com"]), "matches no address"),
    ],
)
def test_what_looks_wrong_is_warned_of(spec: dict[str, Any], sentence: str) -> None:
    (warning,) = of(**spec)
    assert sentence in warning


def test_ordinary_constraints_are_not_warned_of() -> None:
    spec = constraints(
        dnsDomains=["example.com", ".example.com", "local", "bücher.example"],
        uriDomains=["a.example.com"],
        emailAddresses=["me@example.com", ".example.com", "example.com"],
    )
    assert of(**spec, duration="1h", renewBefore="50m") == []


@pytest.mark.parametrize("name", ["a.com", "*.a.com", "A.COM", "_acme.a.com", "localhost", "1.a.com"])
def test_ordinary_names_are_not_warned_of(name: str) -> None:
    assert of(dnsNames=[name], commonName="Jörg Müller", ipAddresses=["::1"]) == []


def test_no_more_than_ten_warnings_are_given() -> None:
    messages = of(dnsNames=[f"a..{number}" for number in range(50)])
    assert (len(messages), messages[-1]) == (11, "and 40 more warnings")
