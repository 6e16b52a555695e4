"""The ACME account of an `acme` issuer: the key in its Secret, the registration at the server, and why the
account cannot be used.

Source: RFC 8555 §7.3; cert-manager `pkg/issuer/acme/setup.go` (reasons and messages).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from certwright.acme.protocol import account, challenges
from certwright.acme.protocol.account import Account, ExternalAccount
from certwright.acme.protocol.client import AcmeClient, Pause, Registry
from certwright.acme.protocol.errors import (
    PROBLEM_TYPES,
    AccountTrouble,
    AcmeError,
    Fault,
    Problem,
    Reaction,
    Refused,
    Unreachable,
    Untrusted,
)
from certwright.acme.protocol.jws import AccountKey, read_mac_key
from certwright.acme.protocol.messages import TlsOptions
from certwright.issuers.contract import AcmeTools, Checked, GetSecret, IssuerView, Tools
from certwright.kit.outgoing import place_of, quote
from certwright.pki import keys
from certwright.pki.errors import BadKey
from certwright.resources.issuer import ACMEIssuer, IssuerACMEStatus, PersistentRecord
from certwright.resources.names import TLS_PRIVATE_KEY_KEY

_KEYS: Final = 1024
NOT_REGISTERED: Final = "ErrRegisterACMEAccount"
NOT_VERIFIED: Final = "ErrVerifyACMEAccount"
NOT_UPDATED: Final = "ErrUpdateACMEAccount"
REGISTER: Final = "Failed to register ACME account: "
VERIFY: Final = "Failed to verify ACME account: "
UPDATE: Final = "Failed to update ACME account: "
_SOON: Final = timedelta(seconds=30)
_LATER: Final = timedelta(hours=1)
REGISTERED = "ACMEAccountRegistered"
_REGISTERED_MESSAGE = "The ACME account was registered with the ACME server"
_AFTER_ACTION = timedelta(minutes=10)


def account_key(spec: ACMEIssuer, secret: Mapping[str, bytes] | None) -> AccountKey | None:
    """The account's key, registered or not; None if the Secret contains no readable key."""
    try:
        return read_key(spec, secret)
    except AccountError:
        return None


async def get_or_create(spec: ACMEIssuer, namespace: str, tools: Tools, acme: AcmeTools) -> AccountKey:
    """The key in the Secret, which is created unless the issuer forbids it. Raises `AccountError`."""
    name = spec.private_key_secret_ref.name
    key = read_key(spec, await tools.get_secret(name))
    if key is not None:
        return key
    if spec.disable_account_key_generation:
        raise AccountError(
            NOT_VERIFIED,
            f"{VERIFY}the ACME issuer config has 'disableAccountKeyGeneration' set to true, but the secret "
            f"was not found: {missing_key(spec)}",
        )
    made = await tools.executor.run(lambda: keys.generate(keys.KeyPlan.of("RSA", 2048)), namespace)
    pem = keys.encode_private_key(made, "PKCS1")
    # Durable before registration: an account whose key is lost is lost. Another writer may have been faster.
    stored = await acme.create_secret(name, {_entry(spec): pem})
    key = read_key(spec, stored)
    if key is None:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}{missing_key(spec)}")
    return key


def _entry(spec: ACMEIssuer) -> str:
    return spec.private_key_secret_ref.key or TLS_PRIVATE_KEY_KEY


def missing_key(spec: ACMEIssuer) -> str:
    """That the Secret holds no key, as a part of a sentence."""
    return f'Secret "{spec.private_key_secret_ref.name}" holds no account key under "{_entry(spec)}"'


def read_key(spec: ACMEIssuer, data: Mapping[str, bytes] | None) -> AccountKey | None:
    """The key in the Secret; None if there is no such Secret. Raises `AccountError` for one without a key."""
    if data is None:
        return None
    pem = data.get(_entry(spec))
    if not pem:
        raise AccountError(
            NOT_VERIFIED,
            f"{VERIFY}{missing_key(spec)}; put the key there, or delete the Secret to have a new one made",
        )
    try:
        return _parsed(pem)
    except BadKey as error:
        name = spec.private_key_secret_ref.name
        raise AccountError(NOT_VERIFIED, f'{VERIFY}the account key in Secret "{name}": {error}') from error


def key_hash(data: Mapping[str, bytes] | None, spec: ACMEIssuer) -> str:
    """cert-manager's `lastPrivateKeyHash`: base64 of the SHA-256 of the key's DER (PKCS#1 for RSA)."""
    pem = (data or {}).get(_entry(spec), b"")
    if not pem:
        return ""
    return _digest(pem)


# Parsing an RSA key takes 30 ms, and every step of every order needs the account's.
@lru_cache(maxsize=_KEYS)
def _parsed(pem: bytes) -> AccountKey:
    return AccountKey.from_pem(pem)


@lru_cache(maxsize=_KEYS)
def _digest(pem: bytes) -> str:
    key = keys.load_private_key(pem)
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    form = serialization.PrivateFormat.TraditionalOpenSSL if is_rsa else serialization.PrivateFormat.PKCS8
    der = key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


class AccountError(Exception):
    """The account cannot be used; the text is one sentence with the fix. `retry_after` None: no retry before
    something changes."""

    def __init__(self, reason: str, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


def account_error(error: AcmeError, reason: str, prefix: str, spec: ACMEIssuer) -> AccountError:
    """Convert an error; its type decides whether and when to retry."""
    if isinstance(error, Unreachable) and not isinstance(error, Untrusted):
        return AccountError(reason, f"{prefix}{error}", retry_after=_SOON)
    if not isinstance(error, Refused):
        return AccountError(reason, f"{prefix}{error}", retry_after=_LATER)
    if error.problem.name == "about:blank" and error.reaction is not Reaction.WAIT:
        # ACME servers refuse with a problem document: this is another server, or a temporary proxy error.
        message = f"{prefix}{error}; check the URL in spec.acme.server with your CA"
        return AccountError(reason, message, retry_after=_LATER)
    message = f"{prefix}{error}{_hint(error.problem, spec)}"
    if error.reaction is not Reaction.WAIT:
        # A retry would be refused again: the issuer or a Secret has to change first.
        return AccountError(reason, message)
    return AccountError(reason, message, retry_after=_SOON)


def _hint(problem: Problem, spec: ACMEIssuer) -> str:
    """What helps, to follow the CA's words. "unauthorized" means another thing here than for an order."""
    if problem.name != "unauthorized":
        known = problem.known
        advice = known.advice if known is not None and known.fault is Fault.ACCOUNT else ""
        return f"; {advice}" if advice else ""
    if spec.external_account_binding is not None:
        return "; check the key ID and the key of spec.acme.externalAccountBinding with your CA"
    secret = spec.private_key_secret_ref.name
    return f'; if the account has been closed, delete Secret "{secret}" to have a new one made'


def client_for(
    issuer: IssuerView, spec: ACMEIssuer, secret: Mapping[str, bytes] | None, registry: Registry
) -> AcmeClient:
    """The client of a registered account, for ordering. `secret` is the data of the account's Secret, None
    if it is missing. Raises `AccountError`."""
    key = read_key(spec, secret)
    if key is None:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}{missing_key(spec)}")
    client = _client(issuer, spec, key, registry)
    known = issuer.account
    # The account of another server, or of a key that was replaced, must not sign here.
    is_current = issuer.ready_at == issuer.generation
    if not client.kid and known is not None and is_current:
        is_same_key = known.last_private_key_hash in ("", key_hash(secret, spec))
        client.kid = known.uri if is_same_key else ""
    if not client.kid:
        raise AccountError(NOT_VERIFIED, f"{VERIFY}it has not been registered yet")
    return client


async def check(issuer: IssuerView, spec: ACMEIssuer, tools: Tools, acme: AcmeTools) -> Checked:
    """Register the account unless it is registered, and update its contact address.

    Sends no request if the issuer is ready and neither key, address nor server has changed.
    """
    secrets = [spec.private_key_secret_ref.name]
    if spec.external_account_binding is not None:
        secrets.append(spec.external_account_binding.key_secret_ref.name)
    try:
        checked = await _checked(issuer, spec, tools, acme)
    except AccountError as error:
        checked = Checked(ready=False, reason=error.reason, message=str(error), retry_after=error.retry_after)
    return replace(checked, secrets=tuple(secrets))


async def _checked(issuer: IssuerView, spec: ACMEIssuer, tools: Tools, acme: AcmeTools) -> Checked:
    key = await get_or_create(spec, issuer.namespace, tools, acme)
    client = _client(issuer, spec, key, acme.registry)
    digest = key_hash(await tools.get_secret(spec.private_key_secret_ref.name), spec)
    known = issuer.account
    is_as_before = (
        known is not None
        and issuer.ready_at == issuer.generation
        and urlsplit(known.uri).netloc == urlsplit(spec.server).netloc
        and known.last_registered_email == spec.email
        and known.last_private_key_hash == digest
    )
    if known is not None and is_as_before and not client.is_lost:
        if known.uri != client.former_kid:
            # Another process may have registered the account again.
            client.kid = known.uri
        elif known.uri != client.kid:
            # Our registration is not in the status yet.
            known = replace(known, uri=client.kid)
        status = replace(known, persistent_record=await _persistent_record(spec, client))
        message = f"{_REGISTERED_MESSAGE}{await _profile_note(spec, client)}"
        return Checked(ready=True, reason=REGISTERED, message=message, account=status)
    former = known.uri if known is not None else ""
    made = await _register(client, spec, tools)
    client.former_kid = former if former != made.url else ""
    _report_refusal(client, tools.now())
    contact = _contact(spec)
    if set(made.contact) != set(contact) and (contact or known is not None):
        try:
            await client.run(account.update_contact, contact)
        except AcmeError as error:
            raise account_error(error, NOT_UPDATED, UPDATE, spec) from error
    status = IssuerACMEStatus(
        uri=made.url,
        last_registered_email=spec.email,
        last_private_key_hash=digest,
        persistent_record=await _persistent_record(spec, client),
    )
    message = f"{_REGISTERED_MESSAGE}{await _profile_note(spec, client)}"
    return Checked(ready=True, reason=REGISTERED, message=message, account=status, is_answered=True)


def _report_refusal(client: AcmeClient, now: datetime) -> None:
    """Report that the server demands an action of the account's owner before it accepts another order. The
    server does not announce when that is done: after a while the next order tries."""
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
