"""Subjects and alternative names."""

from __future__ import annotations

import ipaddress
import subprocess
import sys

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from certwright.pki import names, sans
from certwright.pki.errors import BadName, PkiError
from certwright.pki.names import Subject
from certwright.pki.sans import AltNames, NameConstraints, NameSet, OtherName
from certwright.resources.certificate_rules import SUBJECT_TYPES

# The filter of `names` is not the last word in a test.
pytestmark = pytest.mark.filterwarnings("ignore:Attribute's length must be")

FULL = Subject(
    countries=("DE", "FR"),
    organizations=("Example", "Other"),
    organizational_units=("IT",),
    localities=("Berlin",),
    provinces=("BE",),
    street_addresses=("Straße 1, Hof",),
    postal_codes=("10115",),
    serial_number="42",
)


def test_the_fields_come_in_the_order_that_go_gives_them() -> None:
    name = names.subject_name(FULL, "web")
    kinds = [[names._SHOWN[attribute.oid] for attribute in rdn] for rdn in name.rdns]
    assert kinds == [
        ["C", "C"], ["O", "O"], ["OU"], ["L"], ["ST"], ["STREET"], ["POSTALCODE"], ["CN"], ["SERIALNUMBER"],
    ]  # fmt: skip
    assert names.read_subject(name) == (FULL, "web")
    assert names.text_of(name).startswith("SERIALNUMBER=42,CN=web,POSTALCODE=10115,STREET=Straße 1\\, Hof,")


def test_the_attribute_types_are_those_that_the_api_allows() -> None:
    assert set(names.ATTRIBUTE_TYPES) == SUBJECT_TYPES


def test_a_literal_subject_keeps_its_sequence() -> None:
    name = names.literal_name("CN=web,OU=b+OU=a,DC=example,DC=com,UID=x")
    assert [[a.value for a in rdn] for rdn in name.rdns] == [["x"], ["com"], ["example"], ["b", "a"], ["web"]]
    assert names.text_of(name) == "CN=web,OU=b+OU=a,DC=example,DC=com,UID=x"


def test_attribute_types_are_known_in_any_case_and_by_number() -> None:
    assert names.literal_name("cn=a,serialNumber=7,postalCode=1,2.5.4.4=b") == names.literal_name(
        "CN=a,SERIALNUMBER=7,POSTALCODE=1,SN=b"
    )


@pytest.mark.parametrize(
    ("literal", "sentence"),
    [
        ("FOO=a", '"FOO" is not a known attribute'),
        ("CN=#0C0161", "hexadecimal"),
        ("CN", "expected an attribute"),
        ("CN=" + "a" * 65, "at most 64 bytes"),
        (f"O={chr(0xD800)}", "not Unicode"),
        ("9.9.9=x", "not an object identifier"),
    ],
)
def test_a_subject_that_x509_cannot_hold_is_refused(literal: str, sentence: str) -> None:
    with pytest.raises(BadName, match=sentence):
        names.literal_name(literal)


@pytest.mark.parametrize(
    ("literal", "encoded"),
    [
        # As Go 1.26 writes them: PrintableString (0x13) where it can be, otherwise UTF8String (0x0C).
        ("C=Spain", b"\x06\x03\x55\x04\x06\x13\x05Spain"),
        ("C=", b"\x06\x03\x55\x04\x06\x13\x00"),
        ("CN=", b"\x06\x03\x55\x04\x03\x13\x00"),
        ("C=D", b"\x06\x03\x55\x04\x06\x13\x01D"),
        ("C=España", b"\x06\x03\x55\x04\x06\x0c\x07Espa\xc3\xb1a"),
        ("SERIALNUMBER=a_b", b"\x06\x03\x55\x04\x05\x0c\x03a_b"),
        ("DC=bücher", b"\x0c\x07b\xc3\xbccher"),
        ("EMAILADDRESS=ü@example.com", b"\x0c\x0e\xc3\xbc@example.com"),
    ],
)
def test_what_rfc_5280_has_no_room_for_is_written_as_go_writes_it(literal: str, encoded: bytes) -> None:
    name = names.literal_name(literal)
    assert name.public_bytes().endswith(encoded)
    assert names.text_of(name) == literal


@pytest.mark.parametrize("kind", ["O", "OU", "L", "ST", "STREET", "POSTALCODE", "SERIALNUMBER", "UID", "DC"])
def test_only_a_common_name_has_an_upper_bound(kind: str) -> None:
    assert names.text_of(names.literal_name(f"{kind}={'a' * 300}")) == f"{kind}={'a' * 300}"


@given(st.text(max_size=70), st.sampled_from(["common_name", "organizations", "countries", "serial_number"]))
def test_any_text_in_a_subject_is_encoded_or_refused(text: str, field: str) -> None:
    try:
        if field == "common_name":
            name = names.subject_name(Subject(), text)
            assert names.read_subject(name)[1] == text
        else:
            value = text if field == "serial_number" else (text,)
            name = names.subject_name(Subject(**{field: value}))  # type: ignore[arg-type] # by field name
            assert getattr(names.read_subject(name)[0], field) == value
        assert x509.Name.from_bytes(name.public_bytes()) == name
    except PkiError:
        return


@pytest.mark.parametrize(
    ("typed", "encoded"),
    [
        ("example.com", "example.com"),
        ("Example.COM", "Example.COM"),
        ("*.example.com", "*.example.com"),
        ("_acme.example.com", "_acme.example.com"),
        ("Straße.example", "xn--strae-oqa.example"),
        ("*.BÜCHER.example", "*.xn--bcher-kva.example"),
        ("_sip.bücher.example", "_sip.xn--bcher-kva.example"),
        ("bücher。example", "xn--bcher-kva.example"),
    ],
)
def test_dns_names_become_ascii_label_by_label(typed: str, encoded: str) -> None:
    assert sans.ascii_dns_name(typed) == encoded


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\u2e3a.example", "xn--\u00fc.example", "\ud800.example"])
def test_what_is_no_dns_name_is_refused(name: str) -> None:
    with pytest.raises(BadName, match="is not a DNS name"):
        sans.ascii_dns_name(name)


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:DB8:0::1", "2001:db8::1")],
)
def test_an_ip_address_has_one_form(typed: str, canonical: str) -> None:
    assert sans.canonical_ip(typed) == canonical


@pytest.mark.parametrize("text", ["", "10.0.0", "010.0.0.1", "fe80::1%eth0", "10.0.0.0/8", "host"])
def test_what_is_no_ip_address_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        sans.parse_ip(text)


def test_all_kinds_of_alternative_names_are_found_again() -> None:
    given = AltNames(
        dns_names=("example.com", "*.example.com"),
        ip_addresses=("10.0.0.1", "2001:db8::1"),
        uris=("spiffe://cluster/ns/a/sa/b", "https://example.com/%C3%A4"),
        email_addresses=("a@example.com",),
        other_names=(
            OtherName("1.3.6.1.4.1.311.20.2.3", "user@example.com"),
            OtherName("1.2.3", der=b"\x04\x01x"),
        ),
    )
    assert sans.read(sans.extension(given)) == given
    assert sans.extension(AltNames()) is None


def test_a_name_given_twice_is_written_once() -> None:
    extension = sans.extension(AltNames(dns_names=("a", "a"), ip_addresses=("::1", "0::1")))
    assert extension is not None
    assert len(extension) == 2


@pytest.mark.parametrize(
    "bad",
    [
        AltNames(uris=("https://example.com/ä",)),
        AltNames(uris=("",)),
        AltNames(email_addresses=("ä@example.com",)),
        AltNames(email_addresses=("Somebody <a@example.com>",)),
        AltNames(other_names=(OtherName("not an oid", "x"),)),
        AltNames(other_names=(OtherName("1.2.3", "\ud800"),)),
    ],
)
def test_a_name_that_x509_cannot_hold_is_refused(bad: AltNames) -> None:
    with pytest.raises(BadName):
        sans.extension(bad)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_any_other_name_is_found_again(text: str) -> None:
    given_ = AltNames(other_names=(OtherName("1.2.3", text),))
    assert sans.read(sans.extension(given_)) == given_


def test_name_constraints_are_found_again() -> None:
    constraints = NameConstraints(
        critical=True,
        permitted=NameSet(dns_domains=("example.com",), ip_ranges=("10.0.0.0/8", "2001:db8::/32")),
        excluded=NameSet(email_addresses=(".example.com",), uri_domains=("host.example.com",)),
    )
    extension = sans.constraints_extension(constraints)
    assert sans.read_constraints(extension, critical=True) == constraints
    network = sans.constraints_extension(NameConstraints(permitted=NameSet(ip_ranges=("10.1.2.3/8",))))
    assert network.permitted_subtrees == [x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))]


def test_name_constraints_that_constrain_nothing_are_refused() -> None:
    with pytest.raises(BadName, match="neither"):
        sans.constraints_extension(NameConstraints(permitted=NameSet()))
    with pytest.raises(BadName, match="range"):
        sans.constraints_extension(NameConstraints(excluded=NameSet(ip_ranges=("10.0.0.0/99",))))


def test_a_country_of_more_than_two_letters_is_read_without_a_warning() -> None:
    """In a process of its own, since pytest has the last word about warnings in this one."""
    program = (
        "from certwright.pki import names; from cryptography import x509;"
        "print(names.text_of(x509.Name.from_bytes(names.literal_name('C=Spain').public_bytes())))"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (b"C=Spain", b"")
