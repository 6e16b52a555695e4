"""API objects from another program's files, in the form that the controllers take for current.

The Secret of a certificate has the annotations that the controllers write (see their `target.py`), and the
Certificate has exactly the key and the names of the certificate: then no rule demands an issuance before the
renewal time. The account's key is in the issuer's Secret, so registering returns the existing account (RFC
8555 §7.3.1), and generating another key is disabled.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from certwright.cli.errors import report_warning
from certwright.cli.format import reference
from certwright.cli.importing.files import Account, Challenge, Imported, Installation, Json, Pair
from certwright.diagnosis.certificates import condition
from certwright.diagnosis.related import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, SECRETS, get_or_none
from certwright.diagnosis.words import sentence
from certwright.kube.api import core
from certwright.kube.api.errors import ApiError, Unauthorized, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.keys import KeyAlgorithm
from certwright.resources import names
from certwright.resources.certificate import DEFAULT_DURATION

_ISSUER_NAMES: Final = {
    "acme-v02.api.letsencrypt.org": "letsencrypt",
    "acme-staging-v02.api.letsencrypt.org": "letsencrypt-staging",
    "acme.zerossl.com": "zerossl",
    "api.buypass.com": "buypass",
    "dv.acme-v02.api.pki.goog": "google-trust-services",
}
_LONGEST_NAME: Final = 200
"""Characters: room for the endings of Secrets, Orders and Challenges below the limit of 253."""
_USUAL_USAGES: Final = frozenset({"digital signature", "key encipherment", "server auth"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the objects go: the namespace of the Certificates, the kind of issuers, and the namespace of
    their Secrets."""

    namespace: str
    issuer_kind: str = "Issuer"
    secrets_in: str = ""

    @property
    def issuer_namespace(self) -> str:
        """Empty for ClusterIssuers."""
        return self.namespace if self.issuer_kind == "Issuer" else ""

    @property
    def issuer_secrets_in(self) -> str:
        """The namespace of account keys and credentials."""
        return self.namespace if self.issuer_kind == "Issuer" else self.secrets_in


class AcmeDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all issuers: the CA of the server's own TLS certificate, and the solver for names whose
    settings have no counterpart."""

    ca_bundle: bytes = b""
    solver: Challenge | None = None


class Row(msgspec.Struct, frozen=True):
    """An imported item: the source, its objects (empty: not imported), and notes."""

    source: str
    becomes: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class Plan:
    """The objects to create, in that order, and the table for people."""

    objects: list[Json] = field(default_factory=list, repr=False)
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class _Issuer:
    """An issuer to create: one account with one preferred chain and profile."""

    name: str
    account: Account
    preferred_chain: str
    profile: str
    certificates: list[Imported] = field(default_factory=list)


def plan_of(installation: Installation, place: Place, defaults: AcmeDefaults) -> Plan:
    """Issuers, Certificates and their Secrets for everything that can be imported."""
    plan = Plan()
    issuers = _issuers(installation.certificates)
    for issuer in issuers:
        _add_issuer(plan, issuer, place, defaults)
    taken: set[str] = set()
    for issuer in issuers:
        issuer_ref = {"name": issuer.name, "kind": place.issuer_kind, "group": names.GROUP}
        for certificate in issuer.certificates:
            name = _free_name(object_name(certificate.name), taken)
            objects = certificate_objects(name, f"{name}-tls", certificate.pair, place.namespace, issuer_ref)
            if certificate.keeps_key:
                objects[1]["spec"]["privateKey"]["rotationPolicy"] = "Never"
            notes = [*certificate.notes]
            if (days := certificate.days_before) is not None and not 0 < days < _days_of(certificate.pair):
                notes.append(f"renewal {days} days before the expiry is not possible and not imported")
            elif days is not None:
                objects[1]["spec"]["renewBefore"] = f"{24 * days}h"
                notes.append(f"renewed {days} days before it expires")
            plan.objects += objects
            becomes = (f"Certificate {name}", f"Secret {name}-tls")
            plan.rows.append(Row(str(certificate.path), becomes, (_about(certificate.pair), *notes)))
    plan.rows += [Row(str(refusal.path), (), (refusal.reason,)) for refusal in installation.refusals]
    # A Certificate without its Secret would be issued at once.
    order = ("Secret", "Issuer", "ClusterIssuer", "Certificate")
    plan.objects.sort(key=lambda item: order.index(item["kind"]))
    return plan


def _issuers(certificates: Iterable[Imported]) -> list[_Issuer]:
    issuers: dict[tuple[str, bytes, str, str], _Issuer] = {}
    taken: set[str] = set()
    for certificate in certificates:
        account = certificate.account
        key = (account.server, account.key_pem, certificate.preferred_chain, certificate.profile)
        if key not in issuers:
            host = urlsplit(account.server).hostname or "acme"
            name = _free_name(_ISSUER_NAMES.get(host) or object_name(host), taken)
            issuers[key] = _Issuer(name, account, certificate.preferred_chain, certificate.profile)
        issuers[key].certificates.append(certificate)
    return list(issuers.values())


def _add_issuer(plan: Plan, issuer: _Issuer, place: Place, defaults: AcmeDefaults) -> None:
    account_secret = f"{issuer.name}-account"
    plan.objects.append(
        _secret(account_secret, place.issuer_secrets_in, {names.TLS_PRIVATE_KEY_KEY: issuer.account.key_pem})
    )
    solvers, secrets, notes = _solvers(issuer, defaults.solver)
    for name, entries in secrets.items():
        plan.objects.append(_secret(name, place.issuer_secrets_in, entries))
    acme: Json = {
        "server": issuer.account.server,
        "privateKeySecretRef": {"name": account_secret},
        # Without the Secret no certificate is to be ordered with another account.
        "disableAccountKeyGeneration": True,
        "solvers": solvers,
    }
    optional = {
        "email": issuer.account.email,
        "preferredChain": issuer.preferred_chain,
        "profile": issuer.profile,
        "caBundle": b64encode(defaults.ca_bundle).decode(),
    }
    acme |= {key: value for key, value in optional.items() if value}
    plan.objects.append(_object(place.issuer_kind, issuer.name, place.issuer_namespace, {"acme": acme}))
    becomes = (
        f"{place.issuer_kind} {issuer.name}",
        *(f"Secret {name}" for name in (account_secret, *secrets)),
    )
    plan.rows.append(Row(str(issuer.account.path), becomes, ("the account is kept", *notes)))


def _solvers(
    issuer: _Issuer, default: Challenge | None
) -> tuple[list[Json], dict[str, dict[str, bytes]], list[str]]:
    """The solvers with their selectors, the Secrets of their credentials, and notes."""
    chosen: list[tuple[Challenge, list[str]]] = []
    notes: list[str] = []
    for name, challenge in _challenges(issuer.certificates, default):
        if not challenge.solver:
            notes.append(f"{name}: {challenge.note}")
            continue
        same = next((group for known, group in chosen if known == challenge), None)
        if same is None:
            chosen.append((challenge, [name]))
            notes += [challenge.note] if challenge.note else []
        elif name not in same:
            same.append(name)
    is_only = len(chosen) == 1 and len(notes) == bool(chosen[0][0].note)
    solvers, secrets = [], {}
    for number, (challenge, group) in enumerate(chosen, start=1):
        secret = f"{issuer.name}-dns" + (f"-{number}" if len(chosen) > 1 else "")
        solver = _with_credentials(challenge, secret)
        solvers.append(solver if is_only else {"selector": {"dnsNames": sorted(group)}, **solver})
        if challenge.credentials:
            secrets[secret] = dict(challenge.credentials.values())
    return solvers, secrets, notes


def _challenges(
    certificates: Iterable[Imported], default: Challenge | None
) -> Iterable[tuple[str, Challenge]]:
    """The names, each with its challenge."""
    missing = Challenge(solver={}, note="the challenge is not saved there: name a solver by --solver")
    for certificate in certificates:
        for name in (*certificate.pair.leaf.dns_names, *certificate.pair.leaf.ip_addresses):
            own = certificate.challenges.get(name) or certificate.challenges.get(None) or missing
            yield name, own if own.solver or default is None else default


def _with_credentials(challenge: Challenge, secret: str) -> Json:
    solver: Json = deepcopy(dict(challenge.solver))
    for secret_field, (entry, _) in challenge.credentials.items():
        (provider,) = solver["dns01"].values()
        provider[secret_field] = {"name": secret, "key": entry}
    return solver


def certificate_objects(
    name: str, secret_name: str, pair: Pair, namespace: str, issuer: Mapping[str, str]
) -> list[Json]:
    """A Secret with the pair, and a Certificate for which it is current."""
    facts = pair.leaf
    annotations = {
        names.CERTIFICATE_NAME: name,
        names.ISSUER_NAME: issuer["name"],
        names.ISSUER_KIND: issuer["kind"],
        names.ISSUER_GROUP: issuer["group"],
        names.COMMON_NAME: facts.common_name,
        names.ALT_NAMES: ",".join(facts.dns_names),
        names.IP_SANS: ",".join(facts.ip_addresses),
        names.URI_SANS: ",".join(facts.uris),
    }
    secret = tls_secret(secret_name, namespace, pair)
    secret["metadata"] |= {"labels": {names.FAO_LABEL: "true"}, "annotations": annotations}
    key: Json = {"algorithm": pair.plan.algorithm.value}
    if pair.plan.algorithm is not KeyAlgorithm.ED25519:
        key["size"] = pair.plan.size
    spec = {"secretName": secret_name, "issuerRef": dict(issuer), "privateKey": key, **_names(facts)}
    if not facts.is_ca and set(facts.usages) - _USUAL_USAGES:
        spec["usages"] = list(facts.usages)
    if facts.is_ca:
        spec["isCA"] = True
    return [secret, _object("Certificate", name, namespace, spec)]


def _days_of(pair: Pair) -> int:
    """The validity in whole days, at most the validity that will be requested."""
    return min(pair.leaf.not_after - pair.leaf.not_before, DEFAULT_DURATION) // timedelta(days=1)


def _names(facts: CertificateFacts) -> Json:
    fields: dict[str, Sequence[str]] = {
        "dnsNames": facts.dns_names,
        "ipAddresses": facts.ip_addresses,
        "uris": facts.uris,
        "emailAddresses": facts.email_addresses,
    }
    spec: Json = {key: list(values) for key, values in fields.items() if values}
    if facts.common_name and facts.common_name not in (*facts.dns_names, *facts.ip_addresses):
        spec["commonName"] = facts.common_name
    return spec


def tls_secret(name: str, namespace: str, pair: Pair, *, ca_pem: bytes = b"") -> Json:
    """A Secret of the type kubernetes.io/tls with the pair."""
    ca = {names.CA_CERT_KEY: ca_pem} if ca_pem else {}
    data = {names.TLS_CERT_KEY: pair.chain_pem, names.TLS_PRIVATE_KEY_KEY: pair.key_pem, **ca}
    return _secret(name, namespace, data, names.TLS_SECRET_TYPE)


def pem_plan(name: str, pair: Pair, place: Place, issuer: str | None) -> Plan:
    """A Secret, and a Certificate if an issuer is named."""
    if issuer is None:
        note = "nothing renews it: name an issuer by --issuer"
        row = Row(f"certificate {name}", (f"Secret {name}",), (_about(pair), note))
        return Plan([tls_secret(name, place.namespace, pair)], [row])
    issuer_ref = {"name": issuer, "kind": place.issuer_kind, "group": names.GROUP}
    becomes = (f"Certificate {name}", f"Secret {name}")
    row = Row(f"certificate {name}", becomes, (_about(pair),))
    return Plan(certificate_objects(name, name, pair, place.namespace, issuer_ref), [row])


def ca_plan(name: str, pair: Pair, place: Place) -> Plan:
    """A Secret with the CA's certificate and key, and a CA issuer that uses it."""
    root = chain.split(read_chain(pair.chain_pem)).ca_pem
    objects = [
        tls_secret(name, place.issuer_secrets_in, pair, ca_pem=root),
        _object(place.issuer_kind, name, place.issuer_namespace, {"ca": {"secretName": name}}),
    ]
    becomes = (f"{place.issuer_kind} {name}", f"Secret {name}")
    return Plan(objects, [Row(f"CA {pair.leaf.subject_text or name}", becomes, (_about(pair),))])


def _secret(name: str, namespace: str, data: Mapping[str, bytes], kind: str = "Opaque") -> Json:
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": encoded}


def _object(kind: str, name: str, namespace: str, spec: Mapping[str, Any]) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{names.GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def object_name(text: str) -> str:
    """A name of another program as the name of an object (RFC 1123): `*.example.com` is
    `wildcard.example.com`."""
    name = re.sub(r"^(\*|_)\.", "wildcard.", text.lower())
    name = re.sub(r"[^a-z0-9.-]+", "-", name)[:_LONGEST_NAME]
    labels = [label.strip("-") for label in name.split(".")]
    return ".".join(label for label in labels if label) or "imported"


def _free_name(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    taken.add(candidate)
    return candidate


def _about(pair: Pair) -> str:
    return f"{pair.plan}, valid until {pair.leaf.not_after:%Y-%m-%d}"


_KINDS = {kind.kind: kind for kind in (SECRETS, ISSUERS, CLUSTER_ISSUERS, CERTIFICATES)}
_ISSUERS = (ISSUERS.kind, CLUSTER_ISSUERS.kind)
_CHECKED_WITHIN_S, _LOOKS_EVERY_S = 10.0, 0.1


class Refused(Exception):
    """Objects exist with other content, or the server refuses them; nothing has been written."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


async def write(client: Client, objects: Sequence[Json], clock: Clock) -> list[str]:
    """Create the objects in their order, and return a line for each. A repetition of the same import, or of
    one that was interrupted, changes nothing that exists.

    Raises `Refused` before anything is written, because the server is asked about every object first. Raises
    `ApiError` for an error afterwards: a repetition completes the import.
    """
    existing = [await _existing(client, desired) for desired in objects]
    conflicts = [
        f"{_reference(desired)}{_in_namespace(desired)} exists with other content; delete it, or import into "
        "another namespace"
        for desired, live in zip(objects, existing, strict=True)
        if live is not None and not _contains(live, desired)
    ]
    conflicts += [
        reason
        for desired, live in zip(objects, existing, strict=True)
        if live is None and (reason := await _refusal(client, desired))
    ]
    if conflicts:
        raise Refused(conflicts)
    lines, issuers = [], [desired for desired in objects if desired["kind"] in _ISSUERS]
    for desired, live in zip(objects, existing, strict=True):
        if desired["kind"] == CERTIFICATES.kind and issuers:
            # With a registered account the controllers can ask the server for renewal information right away.
            await _wait_checked(client, issuers, clock)
            issuers = []
        if live is None:
            await _create(client, desired)
        lines.append(f"{_reference(desired)} {'created' if live is None else 'unchanged'}")
    return lines


async def _wait_checked(client: Client, issuers: Sequence[Json], clock: Clock) -> None:
    """Return when the issuers have been checked, with a warning for each that is not Ready; or after some
    seconds, where no controllers run."""
    deadline = clock.monotonic() + _CHECKED_WITHIN_S
    waiting = list(issuers)
    while waiting and clock.monotonic() < deadline:
        live = await _existing(client, waiting[0])
        ready = condition(live, "Ready")
        if not ready:
            await clock.sleep(_LOOKS_EVERY_S)
            continue
        if ready.get("status") != "True":
            report_warning(f"{_reference(waiting[0])} is not Ready: {sentence(str(ready.get('message')))}")
        del waiting[0]


async def _refusal(client: Client, desired: Json) -> str:
    """Why the server would not create the object; empty if it would."""
    try:
        await client.create(_kind(desired), desired, dry_run=True)
    except (Unreachable, Unauthorized):
        raise
    except ApiError as error:
        return f"{_reference(desired)}{_in_namespace(desired)} is refused: {sentence(str(error))}"
    return ""


async def _existing(client: Client, desired: Json) -> Json | None:
    metadata = desired["metadata"]
    return await get_or_none(client, _kind(desired), metadata["name"], metadata.get("namespace", ""))


async def _create(client: Client, desired: Json) -> None:
    kind = _kind(desired)
    if names.CERTIFICATE_NAME not in (desired["metadata"].get("annotations") or {}):
        await client.create(kind, desired)
        return
    # Written by the controllers' field manager, so that they can remove parts that they no longer need.
    data = {key: b64decode(value) for key, value in desired["data"].items()}
    content: dict[str, Any] = {"metadata": desired["metadata"], "type": desired["type"], "data": data}
    await client.apply(core.SECRETS, content, field_manager=names.SECRET_FIELD_MANAGER, force=False)


def _contains(live: Any, desired: Any) -> bool:
    """Whether the live object has all of the desired content; the server adds defaults."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), item) for key, item in desired.items())
    if isinstance(desired, list):
        return isinstance(live, list) and len(live) == len(desired) and all(map(_contains, live, desired))
    return bool(live == desired)


def _kind(desired: Json) -> Kind[Json]:
    return _KINDS[desired["kind"]]


def _reference(desired: Json) -> str:
    return reference(_kind(desired), desired["metadata"]["name"])


def _in_namespace(desired: Json) -> str:
    namespace = desired["metadata"].get("namespace")
    return f" in namespace {namespace}" if namespace else ""
