"""Names of Orders and Challenges: the same for the same content, so that none is created twice.

Source: cert-manager `pkg/api/util/names.go` (`ComputeName`), `pkg/controller/acmeorders/util.go`.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from certwright.resources.acme import ChallengeSpec, OrderSpec

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_STEM = 52


# An Order of a hundred names works out the names of all its Challenges whenever one of them gets on, and each
# takes 50 µs.
@lru_cache(maxsize=4096)
def fnv32(data: bytes) -> int:
    """FNV-1, 32 bits (Go's `hash/fnv.New32`)."""
    value = _OFFSET
    for byte in data:
        value = (value * _PRIME) & _MASK ^ byte
    return value


def order_name(request_name: str, spec: OrderSpec) -> str:
    """The name of the Order for a CertificateRequest: the start of the request's name, and a hash of the
    spec.

    The hash excludes the signing request and covers JSON as Go writes it: cert-manager finds its Orders by
    these names, and would order once more where it takes over from us.
    """
    rest = _json(msgspec.structs.replace(spec, request=b""))
    return _name(request_name, b'{"request":null,' + rest[1:].removeprefix(b'"request":"",'))


def challenge_name(order: str, spec: ChallengeSpec) -> str:
    """The name of a Challenge of that Order."""
    return _name(order, _json(spec))


def _name(prefix: str, content: bytes) -> str:
    # A name must not end in a mark; cert-manager cuts so as well.
    return f"{prefix[:_STEM].rstrip('-.')}-{fnv32(content)}"


def _json(spec: OrderSpec | ChallengeSpec) -> bytes:
    return msgspec.json.encode(spec)
