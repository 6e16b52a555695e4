"""Operator policy: what objects may make a certwright process do, set by flags.

An Issuer or a Challenge may be written by a tenant, who must not run programs, write files or reach servers
by plain http on the operator's machine. Admission, the condition of an Issuer and the solvers themselves
enforce the same policy; the flags are in `docs/acme.md`. The feature gate of ML-DSA keys is enforced in the
same places, and by the issuers that sign in this process.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from certwright.kit.outgoing import ALLOW_HTTP_FLAG, HTTPS_ONLY, BadUrl, ServerRules, parse_server_url, quote
from certwright.kube.api.errors import FieldError, forbidden, invalid
from certwright.resources.certificate import CertificateSpec
from certwright.resources.issuer import IssuerSpec
from certwright.resources.lexicon import LEXICON_FLAG
from certwright.resources.solver import Solver

EXEC_FLAG: Final = "--exec-solver"
WEBROOT_FLAG: Final = "--webroot"
PLUGIN_FLAG: Final = "--dns01-plugin"
POST_QUANTUM_FLAG: Final = "--feature-gates PostQuantum=true"
NO_POST_QUANTUM: Final = f"ML-DSA is an alpha feature; have certwright started with {POST_QUANTUM_FLAG}"
_LONGEST_SHOWN: Final = 200


class Violation(msgspec.Struct, frozen=True):
    """A field whose value the policy forbids. `flag` would allow it; empty: no flag does."""

    field: str
    value: str
    why: str
    flag: str = ""

    @property
    def error(self) -> FieldError:
        """The error of admission."""
        if not self.flag:
            return invalid(self.field, self.value, self.why)
        return forbidden(self.field, self.why)

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPolicy:
    """The operator's permissions; none by default.

    `exec_solvers` maps the name of each program to its whole command line, `exec_environment` is the
    environment of the programs beside `ACME_*`. `webroots` are absolute directories. `dns01_endpoints`
    are URLs that replace those of DNS hosts' APIs, by the name of the provider's field; http is allowed.
    `lexicon_providers` are providers of dns-lexicon, `lexicon_options` the operator's options for them, by
    provider and option. `plugins` are names of plug-ins. `post_quantum` is the feature gate of that name.
    """

    exec_solvers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exec_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    webroots: tuple[str, ...] = ()
    dns01_endpoints: Mapping[str, str] = field(default_factory=dict)
    lexicon_providers: tuple[str, ...] = ()
    lexicon_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    issuer_ambient_credentials: bool = False
    cluster_issuer_ambient_credentials: bool = True
    servers: ServerRules = HTTPS_ONLY
    post_quantum: bool = False

    @property
    def allows_anything(self) -> bool:
        """Whether the operator has set any of the flags."""
        return bool(
            self.exec_solvers
            or self.webroots
            or self.lexicon_providers
            or self.plugins
            or self.servers.allow_http
            or self.post_quantum
        )

    def allows_ambient(self, kind: str) -> bool:
        """Whether an issuer of that kind may use the credentials of this process: its environment, its
        ServiceAccount, the metadata server of the machine."""
        is_cluster = kind == "ClusterIssuer"
        return self.cluster_issuer_ambient_credentials if is_cluster else self.issuer_ambient_credentials

    def command_of(self, command: Sequence[str]) -> tuple[str, ...] | None:
        """The command line to run for `exec.command`: one that the operator has named, selected by the whole
        of it or by its name; None: not allowed."""
        if len(command) == 1 and command[0] in self.exec_solvers:
            return self.exec_solvers[command[0]]
        return tuple(command) if tuple(command) in self.exec_solvers.values() else None

    def webroot_of(self, path: str) -> tuple[str, tuple[str, ...]] | None:
        """The longest directory of `webroots` that contains `http01.webroot.path`, and the components of the
        path below it; None: not allowed. Purely lexical: the solver rejects links."""
        parts = _components(path)
        if parts is None:
            return None
        for root in sorted(self.webroots, key=len, reverse=True):
            above = _components(root)
            if above is not None and parts[: len(above)] == above:
                return root, parts[len(above) :]
        return None


def _components(path: str) -> tuple[str, ...] | None:
    """The components of a path; None if it is relative, or contains `..`."""
    if not path.startswith("/") or "\0" in path:
        return None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    return None if ".." in parts else parts


def issuer_violations(spec: IssuerSpec, policy: OperatorPolicy | None) -> list[Violation]:
    """The settings of an issuer that the policy forbids. Without a policy only those that no flag allows:
    URLs without a server."""
    violations: list[Violation] = []
    for path, url in _server_urls(spec):
        violations += _of_url(path, url, policy)
    if spec.acme is not None:
        for number, solver in enumerate(spec.acme.solvers):
            violations += _of_solver(solver, f"spec.acme.solvers[{number}]", policy)
    return violations


def solver_violations(solver: Solver, path: str, policy: OperatorPolicy | None) -> list[Violation]:
    """The same for one solver at `path`."""
    return list(_of_solver(solver, path, policy))


def certificate_violations(spec: CertificateSpec, policy: OperatorPolicy | None) -> list[Violation]:
    """The settings of a Certificate that the policy forbids."""
    if policy is None or policy.post_quantum or not spec.key.is_ml_dsa:
        return []
    why = f"{NO_POST_QUANTUM}, or write RSA, ECDSA or Ed25519"
    return [Violation("spec.privateKey.algorithm", spec.key.algorithm, why, POST_QUANTUM_FLAG)]


def new_violations(new: Sequence[Violation], old: Sequence[Violation]) -> list[FieldError]:
    """Those of `new` that an update adds. Existing ones stay, because an update of another field must not
    be refused for a missing flag. Paths are ignored, because a list may have been reordered."""
    known = {(violation.flag, violation.value) for violation in old}
    return [violation.error for violation in new if (violation.flag, violation.value) not in known]


def _server_urls(spec: IssuerSpec) -> Iterator[tuple[str, str]]:
    if spec.acme is not None:
        yield "spec.acme.server", spec.acme.server
    if spec.vault is not None:
        yield "spec.vault.server", spec.vault.server
    if spec.venafi is not None:
        venafi = spec.venafi
        if venafi.tpp is not None:
            yield "spec.venafi.tpp.url", venafi.tpp.url
        if venafi.cloud is not None:
            yield "spec.venafi.cloud.url", venafi.cloud.url
        if venafi.ngts is not None:
            yield "spec.venafi.ngts.url", venafi.ngts.url
            yield "spec.venafi.ngts.tokenEndpoint", venafi.ngts.token_endpoint


def _of_url(path: str, url: str, policy: OperatorPolicy | None) -> Iterator[Violation]:
    if not url:
        return  # The kind's own rules decide whether it may be missing.
    try:
        parts = parse_server_url(url)
    except BadUrl as error:
        yield Violation(path, url, str(error))
        return
    if policy is not None and parts.scheme != "https" and not policy.servers.allow_http:
        why = (
            f'"{quote(url, _LONGEST_SHOWN)}" is not an https URL; write https://…, or have certwright '
            f"started with {ALLOW_HTTP_FLAG} (`allowHttpServers` in its configuration)"
        )
        yield Violation(path, url, why, ALLOW_HTTP_FLAG)


def _of_solver(solver: Solver, path: str, policy: OperatorPolicy | None) -> Iterator[Violation]:
    if solver.dns01 is not None and solver.dns01.acme_dns is not None:
        yield from _of_url(f"{path}.dns01.acmeDNS.host", solver.dns01.acme_dns.host, policy)
    if solver.dns01 is not None and solver.dns01.power_dns is not None:
        yield from _of_url(f"{path}.dns01.powerDNS.host", solver.dns01.power_dns.host, policy)
    if policy is None:
        return
    if solver.exec is not None and policy.command_of(solver.exec.command) is None:
        line, what = shlex.join(solver.exec.command), "program"
        flag = f"{EXEC_FLAG} NAME='COMMAND ARGUMENTS' (`execSolver` in its configuration)"
        fix = f"{flag}, and write NAME or the same command here"
        yield _not_allowed(f"{path}.exec.command", line, what, EXEC_FLAG, policy.exec_solvers, fix)
    lexicon = solver.dns01.lexicon if solver.dns01 is not None else None
    if lexicon is not None and lexicon.provider not in policy.lexicon_providers:
        where, what = f"{path}.dns01.lexicon.provider", "provider of dns-lexicon"
        yield _not_allowed(where, lexicon.provider, what, LEXICON_FLAG, policy.lexicon_providers)
    plugin = solver.dns01.plugin if solver.dns01 is not None else None
    if plugin is not None and plugin.name not in policy.plugins:
        where = f"{path}.dns01.plugin.name"
        yield _not_allowed(where, plugin.name, "plug-in", PLUGIN_FLAG, policy.plugins)
    webroot = solver.http01.webroot if solver.http01 is not None else None
    if webroot is not None and policy.webroot_of(webroot.path) is None:
        shown = quote(webroot.path, _LONGEST_SHOWN)
        why = (
            f'"{shown}" is not below a directory that the operator allows; have certwright started with '
            f"{WEBROOT_FLAG} {shlex.quote(shown)} (`webroot` in its configuration), or with a directory "
            "above it"
        )
        yield Violation(f"{path}.http01.webroot.path", webroot.path, why, WEBROOT_FLAG)


def _not_allowed(
    path: str, name: str, what: str, flag: str, allowed: Collection[str], fix: str = ""
) -> Violation:
    shown = quote(name, _LONGEST_SHOWN)
    known = f" (allowed: {', '.join(sorted(allowed))})" if allowed else ""
    why = (
        f"`{shown}` is not a {what} that the operator allows{known}; have certwright started with "
        f"{fix or f'{flag} {shlex.quote(shown)}'}"
    )
    return Violation(path, name, why, flag)
