"""Verification of an issuer's certificate with its chain, as clients verify it.

Source: RFC 5280 §6.1 (path validation) and §4 (the form of a certificate from a conforming CA; OpenSSL checks
it with `-x509_strict`, and Python since 3.13 by default), RFC 6962 §3.1 (precertificates). Further decisions
of clients' libraries are named where they are checked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certwright.kube.util.encoding import one_line
from certwright.pki import limits
from certwright.pki.certificates import (
    REMEMBERED,
    CertificateFacts,
    Extensions,
    extensions_of,
    read_answer,
    read_der,
    value_of,
)
from certwright.pki.chain import is_signed_by
from certwright.pki.errors import BadCertificate, border
from certwright.pki.usages import names_of

MAX_COMPARISONS: Final = 250_000
"""Of names with name constraints, as in Go's `crypto/x509`; OpenSSL allows 2^20."""

_QUICK_BYTES: Final = 12 * 1024
"""Of the PEM texts of chain and CA: as much is verified in half a millisecond, and at worst in some ten, so
handing the work to a thread would take longer."""

_CURVES: Final = tuple(curve.kind for curve in limits.CURVES.values())
_OBSOLETE: Final = frozenset({"md5", "sha1"})
_ANY: Final = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
_DNS_NAME: Final = re.compile(r"(?:[\w-]+\.)+[\w-]+", re.ASCII)
_MOST_TEXTS: Final = 5
_REUSED: Final = timedelta(minutes=1)
_BLANKS: Final = re.compile(r"\s+")


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of clients on a certificate and its chain.

    `chain`: the certificate, the returned certificates that lead from it to the top, then other certificates
    of the same CAs (cross-certificates); certificates that signed nothing in the chain are left out.
    `refusal`: why no client accepts the certificate; empty: a client may accept it. `faults`: why the chain
    is wrong, so that only clients with a better chain accept it. `remarks`: why some clients refuse the
    certificate. Each is a sentence without its first capital letter and its full stop.
    """

    chain: tuple[CertificateFacts, ...]
    refusal: str = ""
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def leaf(self) -> CertificateFacts:
        """The certificate itself."""
        return self.chain[0]


class _Link(NamedTuple):
    """A certificate of the path, parsed once."""

    facts: CertificateFacts
    parsed: x509.Certificate
    extensions: Extensions
    is_self_issued: bool
    """Subject and issuer are equal (RFC 5280 §6.1)."""
    is_leaf: bool

    @classmethod
    def of(cls, facts: CertificateFacts, *, is_leaf: bool = False) -> _Link:
        parsed = facts.parsed
        return cls(facts, parsed, extensions_of(parsed), parsed.subject == parsed.issuer, is_leaf)

    @property
    def name(self) -> str:
        if self.is_leaf:
            return "the certificate"
        return f'the CA certificate "{one_line(self.facts.subject_text)[:200]}"'

    @property
    def obsolete_hash(self) -> str:
        """The hash of its signature, if `cryptography` does not verify such signatures any more."""
        try:
            algorithm = self.parsed.signature_hash_algorithm
        except UnsupportedAlgorithm:
            return "an unknown algorithm"
        return algorithm.name.upper() if algorithm is not None and algorithm.name in _OBSOLETE else ""

    @property
    def basic(self) -> x509.BasicConstraints | None:
        return value_of(self.extensions, x509.BasicConstraints)

    @property
    def is_version_1(self) -> bool:
        return self.parsed.version is x509.Version.v1


def verify(chain: Sequence[CertificateFacts], ca: Sequence[CertificateFacts], now: datetime) -> Verification:
    """Verify the first certificate of `chain` with the rest of it and the CAs of `ca` (may be empty).

    The top of the chain need not be known: a chain may end below its root (RFC 8446 §4.4.2), and then the
    signature of its last certificate is not verified. Takes 0.3 ms, and 0.2 ms for each signature that this
    process has not verified yet. A result is reused for a minute, because the request and its Certificate
    judge the same answer.
    """
    recent = _recent(tuple(facts.der for facts in chain), tuple(facts.der for facts in ca))
    if recent and timedelta(0) <= now - recent[0][0] < _REUSED:
        return recent[0][1]
    try:
        with border(BadCertificate, "the chain cannot be verified", detail=True):
            result = _verify(chain, ca, now)
    except BadCertificate as error:
        result = Verification(chain=tuple(chain), refusal=str(error))
    recent[:] = [(now, result)]
    return result


@lru_cache(maxsize=REMEMBERED // 4)
def _recent(chain: tuple[bytes, ...], ca: tuple[bytes, ...]) -> list[tuple[datetime, Verification]]:
    """When the chain was last verified, and the result; empty: not yet."""
    del chain, ca
    return []


def verify_answer(chain_pem: bytes, ca_pem: bytes, now: datetime) -> Verification:
    """Verify what an issuer returned; `ca_pem` may be blank. Raises `BadCertificate`."""
    return verify(read_answer(chain_pem), read_answer(ca_pem) if ca_pem.strip() else (), now)


def is_quick(chain_pem: bytes, ca_pem: bytes) -> bool:
    """Whether `verify_answer` takes less time than handing it to a thread."""
    return len(chain_pem) + len(ca_pem) <= _QUICK_BYTES


def _verify(chain: Sequence[CertificateFacts], ca: Sequence[CertificateFacts], now: datetime) -> Verification:
    leaf = chain[0]
    path, gap = _path(leaf, (*chain[1:], *ca), now)
    refusals: list[str] = []
    faults: list[str] = []
    remarks: list[str] = []
    if x509.PrecertPoison.oid in path[0].extensions:
        refusals.append("the certificate is a precertificate, made for logs of Certificate Transparency only")
    if gap:
        (refusals if len(path) == 1 else faults).append(gap)
    members = {link.facts.der for link in path}
    is_alone = len(path) == 1 and not gap and not is_signed_by(leaf, leaf)
    if is_alone and path[0].is_self_issued and leaf.authority_key_id in (b"", leaf.subject_key_id):
        refusals.append("the certificate names itself as its issuer, but is not signed with its own key")
    elif is_alone and len(chain) > 1:
        issuer = one_line(leaf.issuer_text)[:200]
        faults.append(f'the CA "{issuer}" of the certificate is not among those that were returned with it')
    elif ca and not any(certificate.der in members for certificate in ca) and not gap:
        faults.append("the CA that was returned beside the chain (ca.crt) is not above the certificate")
    for depth, link in enumerate(path):
        # The issuer of the certificate is in the path of every client; higher ones need not be.
        wrong = refusals if depth == 1 else faults
        if depth:
            wrong.extend(_not_an_issuer(link, path[1:depth], now))
            wrong.extend(_violations(link, path[:depth]))
        faults.extend(_unknown_extensions(link))
        # Of a root the signature does not count.
        if link.obsolete_hash and not (depth and link.is_self_issued):
            faults.append(f"{link.name} is signed with {link.obsolete_hash}, which clients refuse")
        remarks.extend(_weak(link, depth))
        # RFC 6818 §2: RFC 5280 does not apply to a self-signed certificate that is no CA.
        if len(path) > 1:
            remarks.extend(_not_conforming(link, is_top=depth == len(path) - 1))
    for link, above in pairwise(path):
        if link.parsed.issuer.public_bytes() != above.parsed.subject.public_bytes():
            remarks.append(
                f"{link.name} has the name of its issuer in another encoding than {above.name}, which Go "
                "refuses"
            )
    remarks.extend(_usages_cut(path))
    remarks.extend(_below_the_last_ca(path))
    returned = {certificate.der for certificate in chain}
    served = [link.facts for link in path if link.facts.der in returned]
    keys = {(link.parsed.subject, link.facts.spki) for link in path}
    served += [
        other for other in chain if other.der not in members and (other.parsed.subject, other.spki) in keys
    ]
    if [certificate.der for certificate in served] != [certificate.der for certificate in chain]:
        remarks.append(
            "the certificates were not returned in order, each signed by the next (RFC 8446 §4.4.2), or some "
            "of them have signed nothing"
        )
    return Verification(
        chain=tuple(served),
        refusal="; ".join(_first(refusals)),
        faults=_first(faults),
        remarks=_first(remarks),
    )


def _first(texts: Sequence[str]) -> tuple[str, ...]:
    """The first few: they become a message of a condition."""
    more = len(texts) - _MOST_TEXTS
    return (*texts[:_MOST_TEXTS], f"and {more} more") if more > 0 else tuple(texts)


def _path(
    leaf: CertificateFacts, among: Sequence[CertificateFacts], now: datetime
) -> tuple[list[_Link], str]:
    """The path from the certificate to the highest known CA; and why it ends, where the next CA is known by
    its name but has not signed. No more signatures are verified than twice the number of certificates."""
    links = {certificate.der: _above(certificate.der) for certificate in among if certificate.der != leaf.der}
    path, left = [_Link.of(leaf, is_leaf=True)], 2 * len(links)
    while not (path[-1].is_self_issued and is_signed_by(path[-1].facts, path[-1].facts)):
        child = path[-1]
        candidates = [link for link in links.values() if _is_named_by(link, child)]
        # Of several certificates of one CA, the valid one first.
        candidates.sort(key=lambda link: not link.facts.not_before <= now <= link.facts.not_after)
        parent = None
        for candidate in candidates[:left]:
            left -= 1
            if child.obsolete_hash or is_signed_by(child.facts, candidate.facts):
                parent = candidate
                break
        if parent is None:
            gap = f"{child.name} is not signed with the key of {candidates[0].name}" if candidates else ""
            return path, gap
        path.append(links.pop(parent.facts.der))
    return path, ""


# CA certificates are the same for all certificates that one CA issues.
@lru_cache(maxsize=REMEMBERED // 16)
def _above(der: bytes) -> _Link:
    return _Link.of(read_der(der))


def _is_named_by(parent: _Link, child: _Link) -> bool:
    """Whether `parent` has the name, and not another key identifier than, the issuer of `child` has."""
    identifier = parent.facts.subject_key_id
    of_issuer = child.facts.authority_key_id
    return parent.parsed.subject == child.parsed.issuer and (
        not identifier or not of_issuer or identifier == of_issuer
    )


def _not_an_issuer(link: _Link, below: Sequence[_Link], now: datetime) -> Iterator[str]:
    """Why a certificate cannot belong to the issuer of another certificate (RFC 5280 §6.1.3 (a), §6.1.4)."""
    facts, basic = link.facts, link.basic
    if now > facts.not_after:
        yield f"{link.name} expired at {facts.not_after:%Y-%m-%dT%H:%M:%SZ}"
    if now < facts.not_before:
        yield f"{link.name} is not valid before {facts.not_before:%Y-%m-%dT%H:%M:%SZ}"
    if link.is_version_1:
        return
    if basic is None or not basic.ca:
        yield f"{link.name} is not that of a CA (basicConstraints)"
        return
    if not facts.may_sign:
        yield f"{link.name} may not sign certificates (keyUsage without keyCertSign)"
    length = sum(not other.is_self_issued for other in below)
    if basic.path_length is not None and length > basic.path_length:
        yield f"{link.name} allows {basic.path_length} CAs below it (path length), and there are {length}"


def _unknown_extensions(link: _Link) -> Iterator[str]:
    # RFC 5280 §4.2: "A certificate-using system MUST reject the certificate if it encounters a critical
    # extension it does not recognize".
    for oid, extension in link.extensions.items():
        if extension.critical and isinstance(extension.value, x509.UnrecognizedExtension):
            yield f"{link.name} has the critical extension {oid.dotted_string}, which clients do not know"


def _weak(link: _Link, depth: int) -> Iterator[str]:
    """Keys and versions that some clients do not verify."""
    if depth and (problem := _weak_key(link.parsed.public_key())):
        yield f"{link.name} has {problem}"
    if link.is_version_1:
        yield f"{link.name} is of X.509 version 1, which Go and OpenSSL (-x509_strict) refuse"


def _weak_key(key: CertificatePublicKeyTypes) -> str:
    match key:
        case rsa.RSAPublicKey() if not limits.MIN_RSA_BITS <= key.key_size <= limits.MAX_RSA_BITS:
            return (
                f"an RSA key of {key.key_size} bits, and clients verify {limits.MIN_RSA_BITS} to "
                f"{limits.MAX_RSA_BITS}"
            )
        case ec.EllipticCurvePublicKey() if not isinstance(key.curve, _CURVES):
            return f"a key on the curve {key.curve.name}, which Go and browsers do not verify"
        case rsa.RSAPublicKey() | ec.EllipticCurvePublicKey() | ed25519.Ed25519PublicKey():
            return ""
        case _:
            return "a key of an algorithm that few clients verify"


def _not_conforming(link: _Link, *, is_top: bool) -> Iterator[str]:
    """What a conforming CA does not issue, and strict clients refuse."""
    extensions, parsed = link.extensions, link.parsed
    basic, key_usage = link.basic, value_of(extensions, x509.KeyUsage)
    alternative = extensions.get(x509.SubjectAlternativeName.oid)
    alternative_names = value_of(extensions, x509.SubjectAlternativeName)
    is_ca, has_subject = basic is not None and basic.ca, bool(parsed.subject.rdns)
    signs = key_usage is not None and key_usage.key_cert_sign
    length = basic.path_length if basic is not None else None
    problems = (
        ("4.2.1.9", "a basicConstraints that is not critical", is_ca and not _is_critical(link, basic)),
        ("4.2.1.9", "a path length, but is none of a CA", not is_ca and length is not None),
        ("4.2.1.9", "keyCertSign, but is none of a CA", signs and not is_ca),
        ("4.2.1.3", "no keyUsage", is_ca and key_usage is None),
        ("4.1.2.4", "no name of its issuer", not parsed.issuer.rdns),
        ("4.1.2.6", "no subject", not has_subject and (is_ca or alternative is None)),
        (
            "4.1.2.6",
            "no subject and a subjectAltName that is not critical",
            not has_subject and alternative is not None and not alternative.critical,
        ),
        ("4.2.1.6", "an empty subjectAltName", alternative_names is not None and not list(alternative_names)),
        (
            "4.2.1.1",
            "no authorityKeyIdentifier",
            not is_top and not link.is_version_1 and not link.facts.authority_key_id,
        ),
        ("4.2.1.2", "no subjectKeyIdentifier", is_ca and not link.facts.subject_key_id),
        (
            "4.2.1.1",
            "a critical key identifier",
            _is_critical(link, value_of(extensions, x509.AuthorityKeyIdentifier))
            or _is_critical(link, value_of(extensions, x509.SubjectKeyIdentifier)),
        ),
    )
    for section, problem, applies in problems:
        if applies:
            yield (
                f"{link.name} has {problem} (RFC 5280 §{section}), which strict clients refuse, e.g. Python "
                "from 3.13"
            )


def _is_critical(link: _Link, value: x509.ExtensionType | None) -> bool:
    return value is not None and link.extensions[value.oid].critical


def _usages_cut(path: Sequence[_Link]) -> Iterator[str]:
    # Not of RFC 5280; OpenSSL, Go, Windows and Firefox let a CA's extendedKeyUsage restrict what is below it.
    wanted = value_of(path[0].extensions, x509.ExtendedKeyUsage)
    for link in path[1:]:
        allowed = value_of(link.extensions, x509.ExtendedKeyUsage)
        # OpenSSL does not let anyExtendedKeyUsage of a CA stand for others.
        if wanted is None or allowed is None:
            continue
        if cut := [oid for oid in wanted if oid not in allowed and oid != _ANY]:
            listed = ", ".join(names_of(None, x509.ExtendedKeyUsage(cut)))
            yield f"{link.name} has an extendedKeyUsage without {listed}, for which the certificate is"


def _below_the_last_ca(path: Sequence[_Link]) -> Iterator[str]:
    if path[0].basic is None or not path[0].basic.ca:
        return
    for depth, link in enumerate(path[1:], start=1):
        length = sum(not other.is_self_issued for other in path[:depth])
        if link.basic is not None and link.basic.path_length is not None and length > link.basic.path_length:
            yield (
                f"{link.name} allows no further CA below it (path length {link.basic.path_length}, RFC 5280 "
                "§4.2.1.9): clients refuse whatever is signed with the certificate"
            )


# --- name constraints (RFC 5280 §4.2.1.10, §6.1.3 (b) and (c)) --------------------------------------------


def _violations(link: _Link, below: Sequence[_Link]) -> Iterator[str]:
    """The names of the certificates below a CA that its name constraints do not allow."""
    constraints = value_of(link.extensions, x509.NameConstraints)
    if constraints is None:
        return
    # "Name constraints are not applied to self-issued certificates (unless the certificate is the final
    # certificate in the path)."
    restricted = [other for other in below if other.is_leaf or not other.is_self_issued]
    names = [name for other in restricted for name in _names_of(other)]
    permitted, excluded = constraints.permitted_subtrees or (), constraints.excluded_subtrees or ()
    if len(names) * (len(list(permitted)) + len(list(excluded))) > MAX_COMPARISONS:
        yield f"{link.name} has more name constraints than clients compare with {len(names)} names"
        return
    for kind in {type(name) for name in names}:
        allowed, forbidden = _of_type(kind, permitted), _of_type(kind, excluded)
        if not allowed and not forbidden:
            continue
        if kind not in _TYPES:
            yield f"{link.name} constrains names of the type {kind.__name__}, which few clients compare"
            continue
        comparison = _TYPES[kind]
        for name in (name for name in names if isinstance(name, kind)):
            value = comparison.of_name(name.value)
            if allowed and not any(comparison.is_within(value, base) for base in allowed.values()):
                yield f"{link.name} permits only {_listed(tuple(allowed))}, and not {_shown(name)}"
            for shown, base in forbidden.items():
                if comparison.is_within(value, base) or comparison.is_excluded(value, base):
                    yield f"{link.name} excludes {_shown(shown)}, and so {_shown(name)}"


def _of_type(kind: type[x509.GeneralName], bases: Iterable[x509.GeneralName]) -> dict[x509.GeneralName, Any]:
    """The bases of that type, in the form in which they are compared."""
    of_base = _TYPES[kind].of_base if kind in _TYPES else str
    return {base: of_base(base.value) for base in bases if isinstance(base, kind)}


def _names_of(link: _Link) -> Iterator[x509.GeneralName]:
    alternative = value_of(link.extensions, x509.SubjectAlternativeName)
    names = list(alternative) if alternative is not None else []
    yield from names
    subject = link.parsed.subject
    if subject.rdns:
        yield x509.DirectoryName(subject)
    kinds = {type(name) for name in names}
    if x509.RFC822Name not in kinds:
        # "When a certificate does not include a subject alternative name [of that type], the constraint MUST
        # be applied to the attribute of type emailAddress in the subject".
        for attribute in subject.get_attributes_for_oid(NameOID.EMAIL_ADDRESS):
            if isinstance(attribute.value, str) and attribute.value.isascii():
                yield x509.RFC822Name(attribute.value)
    if link.is_leaf and x509.DNSName not in kinds:
        # Not of RFC 5280; OpenSSL applies them to a common name that looks like a DNS name.
        for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME):
            if isinstance(attribute.value, str) and _DNS_NAME.fullmatch(attribute.value):
                yield x509.DNSName(attribute.value)


class _Comparison(NamedTuple):
    """How names of one type are compared with bases: `of_name` and `of_base` give what is compared."""

    of_name: Callable[[Any], Any]
    of_base: Callable[[Any], Any]
    is_within: Callable[[Any, Any], bool]
    is_excluded: Callable[[Any, Any], bool] = lambda _name, _base: False
    """Whether a name counts as within an excluded base besides."""


def _dns_text(value: str) -> str:
    return value.lower().removesuffix(".")


def _is_dns_within(name: str, base: str) -> bool:
    # "Any DNS name that can be constructed by simply adding zero or more labels to the left-hand side"; with
    # a leading dot, which is not of RFC 5280, OpenSSL and Go want at least one.
    return not base or name == base or name.endswith(base if base.startswith(".") else f".{base}")


def _covers(name: str, base: str) -> bool:
    """Whether a wildcard covers an excluded name. Not of RFC 5280; Go refuses it (CVE-2025-61727)."""
    return name.startswith("*.") and base.removeprefix(".").partition(".")[2] == name[2:]


def _is_host_within(host: str, base: str) -> bool:
    """A base means that host, and with a leading dot all hosts below it."""
    return host.endswith(base) if base.startswith(".") else host == base


def _mailbox(value: str) -> tuple[str, str]:
    local, _, host = value.rpartition("@")
    return local, host.lower()


def _is_mailbox_within(name: tuple[str, str], base: tuple[str, str]) -> bool:
    return _is_host_within(name[1], base[1]) and (not base[0] or name[0] == base[0])


def _host_of(uri: str) -> str:
    """The domain name in a URI; empty if there is none, or an address in its place."""
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return ""
    return "" if ":" in host or host.replace(".", "").isdigit() else host.lower()


def _address(value: Any) -> Any:
    return value


def _is_address_within(name: Any, base: Any) -> bool:
    networks = (ipaddress.IPv4Network, ipaddress.IPv6Network)
    return isinstance(base, networks) and not isinstance(name, networks) and name in base


def _directory_name(value: x509.Name) -> list[frozenset[tuple[str, str | bytes]]]:
    # §7.1: case and repeated spaces make no difference.
    return [
        frozenset(
            (
                attribute.oid.dotted_string,
                _BLANKS.sub(" ", attribute.value.strip()).casefold()
                if isinstance(attribute.value, str)
                else attribute.value,
            )
            for attribute in rdn
        )
        for rdn in value.rdns
    ]


_TYPES: Final[dict[type[x509.GeneralName], _Comparison]] = {
    x509.DNSName: _Comparison(_dns_text, _dns_text, _is_dns_within, _covers),
    x509.RFC822Name: _Comparison(_mailbox, _mailbox, _is_mailbox_within),
    # "If a constraint is applied to the uniformResourceIdentifier field […] and a certificate includes [one
    # without a host that is a domain name], then the application MUST reject the certificate."
    x509.UniformResourceIdentifier: _Comparison(
        _host_of,
        str.lower,
        lambda host, base: bool(host) and _is_host_within(host, base),
        lambda host, _base: not host,
    ),
    x509.IPAddress: _Comparison(_address, _address, _is_address_within),
    x509.DirectoryName: _Comparison(
        _directory_name, _directory_name, lambda rdns, base: rdns[: len(base)] == base
    ),
}
_LISTED: Final = 3


def _listed(names: Sequence[x509.GeneralName]) -> str:
    shown = ", ".join(_shown(name) for name in names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown


def _shown(name: x509.GeneralName) -> str:
    value = name.value
    text = value.rfc4514_string() if isinstance(value, x509.Name) else str(value)
    return f'"{one_line(text)[:100]}"'
