"""The ACME account of an `acme` issuer: its key, and its registration at the server.

Source: RFC 8555 §7.3; cert-manager `pkg/issuer/acme/setup.go` (reasons and messages).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from certwright.acme.protocol import account, challenges
from certwright.acme.protocol.account import Account, ExternalAccount
from certwright.acme.protocol.client import AcmeClient, Pause, Registry
from certwright.acme.protocol.errors import PROBLEM_TYPES, AccountTrouble, AcmeError, Refused
from certwright.acme.protocol.jws import AccountKey, read_mac_key
from certwright.acme.protocol.messages import TlsOptions
from certwright.issuers import acme_account_key
from certwright.issuers.acme_account_errors import (
    NOT_REGISTERED,
    NOT_UPDATED,
    NOT_VERIFIED,
    REGISTER,
    UPDATE,
    VERIFY,
    AccountError,
    account_error,
)
from certwright.issuers.contract import AcmeTools, Checked, GetSecret, IssuerView, Tools
from certwright.kit.outgoing import place_of, quote
from certwright.pki.errors import BadKey
from certwright.resources.issuer import ACMEIssuer, IssuerACMEStatus, PersistentRecord

REGISTERED = "ACMEAccountRegistered"
_READY = "The ACME account was registered with the ACME server"
_AFTER_ACTION = timedelta(minutes=10)


def client_for(
    issuer: IssuerView, spec: ACMEIssuer, secret: Mapping[str, bytes] | None, registry: Registry
) -> AcmeClient:
    """The client of a registered account, for ordering. `secret` is the data of the account's Secret, None
    if it is missing. Raises `AccountError`."""
    key = acme_account_key.read_key(spec, secret)
    if key is None:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}{acme_account_key.missing_key(spec)}")
    client = _client(issuer, spec, key, registry)
    known = issuer.account
    # The account of another server, or of a key that was replaced, must not sign here.
    is_current = issuer.ready_at == issuer.generation
    if not client.kid and known is not None and is_current:
        is_same_key = known.last_private_key_hash in ("", acme_account_key.key_hash(secret, spec))
        client.kid = known.uri if is_same_key else ""
    if not client.kid:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}it has not been registered yet")
    return client


class _Verdict(NamedTuple):
    """The account, an addition to the condition's message, and whether the server has answered."""

    account: IssuerACMEStatus
    note: str
    is_answered: bool


async def check(issuer: IssuerView, spec: ACMEIssuer, tools: Tools, acme: AcmeTools) -> Checked:
    """Register the account unless it is registered, and update its contact address.

    Sends no request if the issuer is ready and neither key, address nor server has changed.
    """
    secrets = [spec.private_key_secret_ref.name]
    if spec.external_account_binding is not None:
        secrets.append(spec.external_account_binding.key_secret_ref.name)
    try:
        verdict = await _checked(issuer, spec, tools, acme)
    except AccountError as error:
        return Checked(
            ready=False,
            reason=error.reason,
            message=str(error),
            secrets=tuple(secrets),
            retry_after=error.retry_after,
        )
    return Checked(
        ready=True,
        reason=REGISTERED,
        message=f"{_READY}{verdict.note}",
        secrets=tuple(secrets),
        account=verdict.account,
        is_answered=verdict.is_answered,
    )


async def _checked(issuer: IssuerView, spec: ACMEIssuer, tools: Tools, acme: AcmeTools) -> _Verdict:
    key = await acme_account_key.get_or_create(spec, issuer.namespace, tools, acme)
    client = _client(issuer, spec, key, acme.registry)
    digest = acme_account_key.key_hash(await tools.get_secret(spec.private_key_secret_ref.name), spec)
    known = issuer.account
    if known is not None and _is_as_before(issuer, known, spec, digest) and not client.is_lost:
        if known.uri != client.former_kid:
            # Another process may have registered the account again.
            client.kid = known.uri
        elif known.uri != client.kid:
            # Our registration is not in the status yet.
            known = replace(known, uri=client.kid)
        status = replace(known, persistent_record=await _persistent_record(spec, client))
        return _Verdict(status, await _profile_note(spec, client), is_answered=False)
    former = known.uri if known is not None else ""
    made = await _register(client, spec, tools)
    client.former_kid = former if former != made.url else ""
    _report_refusal(client, tools.now())
    contact = _contact(spec)
    if set(made.contact) != set(contact) and (contact or known is not None):
        await _update_contact(client, contact, spec)
    status = IssuerACMEStatus(
        uri=made.url,
        last_registered_email=spec.email,
        last_private_key_hash=digest,
        persistent_record=await _persistent_record(spec, client),
    )
    return _Verdict(status, await _profile_note(spec, client), is_answered=True)


def _report_refusal(client: AcmeClient, now: datetime) -> None:
    """Report that the server demands something of the account's owner before it accepts another order. It is
    not known when that is done: after a while the next order tries it."""
    if client.refusal is None:
        return
    refusal, at = client.refusal
    if now - at >= _AFTER_ACTION:
        client.refusal = None
        return
    # RFC 8555 §7.3.3: "the server … MUST include an instance field", the page for the user.
    page = f" ({quote(refusal.instance)})" if refusal.instance else ""
    advice = PROBLEM_TYPES["userActionRequired"].advice
    raise AccountError(
        NOT_VERIFIED, f"{VERIFY}{refusal.sentence}; {advice}{page}", retry_after=at + _AFTER_ACTION - now
    )


def _is_as_before(issuer: IssuerView, known: IssuerACMEStatus, spec: ACMEIssuer, digest: str) -> bool:
    return (
        issuer.ready_at == issuer.generation
        and urlsplit(known.uri).netloc == urlsplit(spec.server).netloc
        and known.last_registered_email == spec.email
        and known.last_private_key_hash == digest
    )


def _client(issuer: IssuerView, spec: ACMEIssuer, key: AccountKey, registry: Registry) -> AcmeClient:
    tls = TlsOptions(spec.ca_bundle, skip_verify=spec.skip_tls_verify)
    try:
        return registry.get(spec.server, key, tls, issuer.namespace)
    except ValueError as error:
        raise AccountError("InvalidConfig", f"spec.acme.caBundle: {error}") from error


def _contact(spec: ACMEIssuer) -> list[str]:
    return [f"mailto:{spec.email.lower()}"] if spec.email else []


async def _register(client: AcmeClient, spec: ACMEIssuer, tools: Tools) -> Account:
    external = await _external(spec, tools.get_secret)
    content = (spec.email, external)
    pause, now = client.pause, tools.now()
    if pause is not None and pause.content == content and now < pause.until:
        raise AccountError(NOT_REGISTERED, pause.why, retry_after=pause.until - now)
    try:
        directory = await client.directory(fresh=client.is_lost)
        is_unbound = directory.external_account_required and external is None
        made = await (_find_existing(client, spec) if is_unbound else _make(client, spec, external, tools))
    except AcmeError as error:
        failure = account_error(error, NOT_REGISTERED, REGISTER, spec)
        if isinstance(error, Refused) and error.retry_after is not None:
            client.pause = Pause(error.retry_after, content, str(failure))
            failure.retry_after = max(error.retry_after - now, timedelta(seconds=1))
        raise failure from error
    if not made.is_usable:
        name = spec.private_key_secret_ref.name
        raise AccountError(
            NOT_VERIFIED,
            f'{VERIFY}the account {place_of(made.url)} is {quote(made.status, 40)}; delete Secret "{name}" '
            "(or name another one in spec.acme.privateKeySecretRef) to have a new account made",
        )
    client.is_lost = False
    return made


async def _find_existing(client: AcmeClient, spec: ACMEIssuer) -> Account:
    """The account of a key that exists already: only new accounts are bound (RFC 8555 §7.3.4)."""
    if spec.disable_account_key_generation:
        with suppress(AccountTrouble):
            return await client.run(account.find)
    raise AccountError(
        NOT_REGISTERED,
        f"{REGISTER}the server demands an external account binding; set "
        "spec.acme.externalAccountBinding to what your CA gave you",
    )


async def _profile_note(spec: ACMEIssuer, client: AcmeClient) -> str:
    """The addition to the Ready condition if the server offers no such profile. As in cert-manager the issuer
    stays Ready: its Orders fail, with the same explanation."""
    if not spec.profile:
        return ""
    try:
        wrong = await client.missing_profile(spec.profile)
    except AcmeError:
        return ""
    return f"; but the {wrong}" if wrong else ""


async def _persistent_record(spec: ACMEIssuer, client: AcmeClient) -> PersistentRecord | None:
    """The record that solvers of the type `dnsPersist01` rely on; None if there is no such solver, or if the
    server's directory cannot be read now."""
    if all(solver.dns_persist01 is None for solver in spec.solvers):
        return None
    try:
        issuers = (await client.directory()).caa_identities
    except AcmeError:
        return None
    record = challenges.PersistentRecord(issuers, client.kid)
    return PersistentRecord(
        name=challenges.dns_persist_name("DOMAIN"),
        value=record.value(wildcard=False),
        wildcard_value=record.value(wildcard=True),
        issuer_domain_names=issuers,
    )


async def _make(
    client: AcmeClient, spec: ACMEIssuer, external: ExternalAccount | None, tools: Tools
) -> Account:
    """Register the account, if the server's limit of new accounts allows it."""
    limit = tools.acme.account_limit if tools.acme is not None and not client.kid else None
    if limit is None:
        return await client.run(account.register, _contact(spec), external=external)
    if (wait := await limit.admit(spec.server)) is not None:
        raise AccountError(NOT_REGISTERED, f"{REGISTER}{wait[0]}", retry_after=wait[1] - tools.now())
    is_made = False
    try:
        made = await client.run(account.register, _contact(spec), external=external)
        is_made = True
    finally:
        limit.ended(spec.server, is_made=is_made)
    return made


async def _update_contact(client: AcmeClient, contact: list[str], spec: ACMEIssuer) -> None:
    try:
        await client.run(account.update_contact, contact)
    except AcmeError as error:
        raise account_error(error, NOT_UPDATED, UPDATE, spec) from error


async def _external(spec: ACMEIssuer, get_secret: GetSecret) -> ExternalAccount | None:
    binding = spec.external_account_binding
    if binding is None:
        return None
    reference = binding.key_secret_ref
    data = await get_secret(reference.name)
    text = (data or {}).get(reference.key, b"")
    if not text:
        what = "does not exist" if data is None else f'has no entry "{reference.key}"'
        raise AccountError(
            NOT_REGISTERED,
            f'{REGISTER}Secret "{reference.name}" of spec.acme.externalAccountBinding {what}',
        )
    try:
        return ExternalAccount(binding.key_id, read_mac_key(text))
    except BadKey as error:
        where = f'entry "{reference.key}" of Secret "{reference.name}"'
        raise AccountError(NOT_REGISTERED, f"{REGISTER}{where}: {error}") from error
