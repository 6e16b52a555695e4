"""The policy of a zone, and the field of a request that breaks it.

The server enforces its policy itself. Checked here first, a violation costs no order and names the field. A
part of a policy in an unknown form is left to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from certwright.issuers.servers import NAMES, Fields
from certwright.kube.util.patterns import compile_pattern
from certwright.pki.csr import CsrFacts
from certwright.pki.keys import KeyAlgorithm, KeyPlan

_LONGEST_PATTERN: Final = 512
"""Characters. A longer pattern takes long to compile."""


class Allowed(Protocol):
    """The values that a policy allows for one field of the request."""

    def permits(self, value: str) -> bool:
        """Whether the policy allows this value."""


@dataclass(frozen=True, slots=True)
class OneOf(Allowed):
    """These values only; none: the field must be empty."""

    values: frozenset[str]

    def permits(self, value: str) -> bool:
        return value in self.values


@dataclass(frozen=True, slots=True)
class Domains(Allowed):
    """Names in these domains (none: in any); with `wildcards` also `*.` names."""

    domains: tuple[str, ...]
    wildcards: bool

    def permits(self, value: str) -> bool:
        if "*" in value and not self.wildcards:
            return False
        name = value.lower()
        return not self.domains or any(
            name == domain or name.endswith(f".{domain}") for domain in map(str.lower, self.domains)
        )


@dataclass(frozen=True, slots=True)
class Patterns(Allowed):
    """The values that match one of these regular expressions; without any, the field must be empty."""

    patterns: tuple[str, ...]

    def permits(self, value: str) -> bool:
        return any(_compiled(pattern)(value) for pattern in self.patterns)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Callable[[str], bool]:
    # The patterns come from a server that a tenant may have named: no backtracking, and no long ones.
    if len(pattern) > _LONGEST_PATTERN:
        return lambda _value: True
    try:
        return compile_pattern(pattern)
    except ValueError:
        return lambda _value: True


class KeyRules(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that a policy allows. None: any. `curves` are names such as `P256` and `ED25519`."""

    algorithms: frozenset[str] | None = None
    rsa_sizes: frozenset[int] | None = None
    rsa_minimum: int = 0
    curves: frozenset[str] | None = None

    def violation(self, plan: KeyPlan | None) -> str:
        """The field of the Certificate that breaks the rules; empty: none does."""
        if plan is None:
            return ""
        if plan.is_ml_dsa:
            # No product of Venafi has these keys; without any rule, its server decides.
            return "spec.privateKey.algorithm" if self != KeyRules() else ""
        is_rsa = plan.algorithm is KeyAlgorithm.RSA
        if self.algorithms is not None and ("RSA" if is_rsa else "EC") not in self.algorithms:
            return "spec.privateKey.algorithm"
        if is_rsa:
            is_listed = self.rsa_sizes is None or plan.size in self.rsa_sizes
            return "" if is_listed and plan.size >= self.rsa_minimum else "spec.privateKey.size"
        is_curve = plan.algorithm is KeyAlgorithm.ECDSA
        if self.curves is None or (f"P{plan.size}" if is_curve else "ED25519") in self.curves:
            return ""
        return "spec.privateKey.size" if is_curve else "spec.privateKey.algorithm"


class ZonePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A zone. `names`: the allowed values of a request's fields (keys of `FIELDS`); other fields are free.
    `longest` limits the lifetime. The IDs are SaaS's and NGTS's."""

    names: Mapping[str, Allowed] = msgspec.field(default_factory=dict)
    keys: KeyRules = KeyRules()
    longest: timedelta | None = None
    template_id: str = ""
    application_id: str = ""


class Violation(NamedTuple):
    """The field of the Certificate that breaks a policy, and its value."""

    field: str
    value: str

    def __str__(self) -> str:
        return f'{self.field} "{self.value}"'


FIELDS: Final[Fields] = {
    **NAMES,
    "organizations": ("spec.subject.organizations", lambda csr: csr.subject.organizations),
    "organizational_units": (
        "spec.subject.organizationalUnits",
        lambda csr: csr.subject.organizational_units,
    ),
    "localities": ("spec.subject.localities", lambda csr: csr.subject.localities),
    "provinces": ("spec.subject.provinces", lambda csr: csr.subject.provinces),
    "countries": ("spec.subject.countries", lambda csr: csr.subject.countries),
}
"""The fields of a Certificate that a policy may restrict, and their values in a signing request."""


def violation_of(
    policy: ZonePolicy, csr: CsrFacts, key: KeyPlan | None, lifetime: timedelta
) -> Violation | None:
    """The first field of the request that the policy forbids; None: the policy allows the request.

    A field that the request leaves empty is allowed: the server fills it in.
    """
    for name, allowed in policy.names.items():
        path, values = FIELDS[name]
        for value in values(csr):
            if not allowed.permits(value):
                return Violation(path, value)
    if key is not None and (path := policy.keys.violation(key)):
        return Violation(path, str(key))
    if policy.longest is not None and lifetime > policy.longest:
        return Violation("spec.duration", f"{lifetime // timedelta(hours=1)}h")
    return None
