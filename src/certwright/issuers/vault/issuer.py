"""The `vault` issuer: judges the server and its settings, and has it sign.

Source: cert-manager `pkg/issuer/vault/setup.go` (reasons and messages of the condition) and
`pkg/controller/certificaterequests/vault/vault.go` (of the request).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from certwright.issuers.contract import (
    Checked,
    Failed,
    IssuerView,
    Outcome,
    Pending,
    Remark,
    ServerTools,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.issuers.servers import (
    CHECK_ANYWAY,
    NAMES,
    NO_REQUESTS,
    BadSettings,
    CallError,
    LoginRefused,
    Refused,
    Sessions,
    Unauthorized,
    failing,
    not_ready,
    unusable,
)
from certwright.issuers.vault.api import SignedByVault, VaultSession
from certwright.issuers.vault.settings import StaticToken, problem_of, settings_of
from certwright.pki import chain
from certwright.pki.certificates import read_answer
from certwright.pki.csr import CsrFacts, read_csr
from certwright.pki.errors import PkiError
from certwright.resources.causes import Cause
from certwright.resources.issuer import VaultIssuer

VERIFIED: Final = "VaultVerified"
_VERIFIED_MESSAGE: Final = "Vault verified"
_ERROR: Final = "VaultError"
_CLIENT: Final = "Failed to initialize Vault client"
_HEALTH: Final = "Failed to verify Vault is initialized and unsealed"
_SIGNING_ERROR: Final = "SigningError"
_INIT_ERROR: Final = "VaultInitError"
_NOT_SIGNED: Final = "Vault failed to sign certificate"
_TRUST_FIX: Final = "put the CA of the server into spec.vault.caBundle"

_SHORTENED: Final = Remark(
    "BadConfig",
    "Vault has issued the certificate for a shorter time than requested; change spec.duration, or max_ttl of "
    "the role",
)
_TOLERANCE: Final = timedelta(minutes=5)
"""Clocks differ."""
_UNKNOWN_ROLE: Final = "unknown role"
"""The PKI engine's documented answer for a role that does not exist."""


class Vault:
    """Signs with the PKI engine of Vault or OpenBao. Keeps a token for each issuer, and nothing else."""

    def __init__(self) -> None:
        self._sessions: Sessions[VaultSession] = Sessions()

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Ready if the server is unsealed, and the login may use a PKI engine at `spec.vault.path`."""
        spec = _spec(issuer)
        if problem := problem_of(spec):
            return Checked(ready=False, reason=_ERROR, message=problem)
        if tools.servers is None:
            return Checked(ready=False, reason=_ERROR, message=f"{_CLIENT}: {NO_REQUESTS}")
        try:
            session = await self._session(issuer, spec, tools, tools.servers)
            await session.api.check_health()
        except BadSettings as error:
            return not_ready(_ERROR, f"{_CLIENT}: {error}", error.secret)
        except CallError as error:
            return not_ready(_ERROR, f"{_HEALTH}: {error}")
        try:
            problem = await session.use(lambda token: _access(session, token, spec))
        except (BadSettings, LoginRefused, CallError) as error:
            problem = str(error)
        if problem:
            return not_ready(_ERROR, f"{_CLIENT}: {problem}")
        return Checked(
            ready=True,
            reason=VERIFIED,
            message=_VERIFIED_MESSAGE,
            retry_after=CHECK_ANYWAY,
            is_answered=True,
        )

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Send the signing request to the path of the role."""
        spec, request = _spec(issuer), signing.request.spec
        try:
            csr = read_csr(request.request)
        except PkiError as error:
            return Failed(_SIGNING_ERROR, f"{_NOT_SIGNED}: {error}", cause=Cause.INVALID_REQUEST)
        if problem := problem_of(spec):
            return Pending(_INIT_ERROR, problem)
        if tools.servers is None:
            return Pending(_INIT_ERROR, NO_REQUESTS)
        try:
            session = await self._session(issuer, spec, tools, tools.servers)
            signed = await session.use(
                lambda token: session.api.sign(
                    token,
                    spec.path,
                    {
                        "common_name": csr.common_name,
                        "alt_names": ",".join((*csr.dns_names, *csr.email_addresses)),
                        "ip_sans": ",".join(csr.ip_addresses),
                        "uri_sans": ",".join(csr.uris),
                        "ttl": f"{int(request.requested_duration.total_seconds())}s",
                        "csr": request.request.decode(),
                        "exclude_cn_from_sans": "true",
                    },
                ),
            )
        except BadSettings as error:
            return unusable(error, _INIT_ERROR, "vault")
        except LoginRefused as error:
            return failing(_INIT_ERROR, str(error))
        except CallError as error:
            return _not_signed(error, csr, spec)
        end = tools.now() + request.requested_duration
        namespace = signing.request.metadata.namespace
        return await tools.executor.run(lambda: _signed(signed, csr, end), namespace)

    async def probe(self, issuer: IssuerView, tools: Tools) -> str:
        """Check the server's health. Returns why it does not work, in a sentence; empty: it works."""
        assert tools.servers is not None
        try:
            session = await self._session(issuer, _spec(issuer), tools, tools.servers)
            await session.api.check_health()
        except (BadSettings, CallError) as error:
            return str(error)
        return ""

    async def _session(
        self, issuer: IssuerView, spec: VaultIssuer, tools: Tools, servers: ServerTools
    ) -> VaultSession:
        settings = await settings_of(issuer, spec, tools.get_secret, servers)
        try:
            return self._sessions.get(
                issuer.uid,
                settings,
                lambda: VaultSession(settings, servers.client(settings.tls, _TRUST_FIX), servers, tools.now),
            )
        except ValueError as error:
            raise BadSettings(f"{error}; correct caBundle or the client certificate in spec.vault") from error


def _spec(issuer: IssuerView) -> VaultIssuer:
    assert issuer.spec.vault is not None, "table.kind_of chose this implementation because of it"
    return issuer.spec.vault


async def _access(session: VaultSession, token: str, spec: VaultIssuer) -> str:
    """What the token lacks to sign; empty if it lacks nothing. Each question costs one request."""
    if not await session.api.may_sign(token, spec.path):
        problem = (
            f'the token may not sign at "{spec.path}"; give one of its policies: '
            f'path "{spec.path}" {{ capabilities = ["update"] }}'
        )
    elif not await session.api.has_engine(token, spec.path):
        problem = f'no PKI engine is mounted at spec.vault.path "{spec.path}", e.g. pki/sign/my-role'
    else:
        return ""
    if isinstance(session.settings.credentials, StaticToken):
        try:
            await session.api.lookup_self(token)
        except Unauthorized:
            return (
                "the token in spec.vault.auth.tokenSecretRef is invalid or has expired; put a valid one into "
                "the Secret"
            )
    return problem


def _not_signed(error: CallError, csr: CsrFacts, spec: VaultIssuer) -> Outcome:
    text = f"{_NOT_SIGNED}: {error}"
    match error:
        case Unauthorized():
            fix = f'give a policy of the login: path "{spec.path}" {{ capabilities = ["update"] }}'
            if spec.auth.token_secret_ref is not None:
                fix = f"put a valid token into the Secret of spec.vault.auth.tokenSecretRef, or {fix}"
            return failing(_SIGNING_ERROR, f"{text}; {fix}")
        case Refused() if error.status != 404 and not any(_UNKNOWN_ROLE in words for words in error.errors):
            return Failed(_SIGNING_ERROR, text, cause=Cause.INVALID_REQUEST, advice=_advice(error, csr))
        case Refused():
            fix = f'spec.vault.path of the issuer is "{spec.path}"; it must be the sign endpoint of a role'
            return failing(_SIGNING_ERROR, f"{text}; {fix}")
        case _:
            return failing(_SIGNING_ERROR, text, error)


_PHRASES: Final = (
    ("keys of type", "spec.privateKey.algorithm"),
    ("-bit key", "spec.privateKey.size"),
    ("notAfter", "spec.duration"),
    ("common_name", "spec.commonName"),
    ("IP Subject Alternative Names", "spec.ipAddresses"),
    ("URI Subject Alternative Names", "spec.uris"),
)
"""Parts of the PKI engine's error strings, and the fields that these are about."""


def _advice(error: Refused, csr: CsrFacts) -> str:
    """The field that the server's words are about, for people; nothing is decided by it."""
    words = " ".join(error.errors)
    for field, values in NAMES.values():
        for value in values(csr):
            if value in words:
                return f'change {field} ("{value}"), or what the role in Vault allows'
    field = next((field for phrase, field in _PHRASES if phrase in words), "what the role does not allow")
    return f"change {field}, or the role in Vault"


def _signed(signed: SignedByVault, csr: CsrFacts, requested_end: datetime) -> Outcome:
    try:
        certificates = chain.in_order(
            read_answer("\n".join((signed.certificate, *dict.fromkeys(signed.chain))).encode())
        )
    except (PkiError, ValueError) as error:
        return failing(_SIGNING_ERROR, f"{_NOT_SIGNED}: the answer is not a certificate chain: {error}")
    if certificates[0].public_key_der != csr.public_key_der:
        return failing(_SIGNING_ERROR, f"{_NOT_SIGNED}: the answer holds a certificate for another key")
    bundle = chain.split(certificates)
    is_shorter = certificates[0].not_after < requested_end - _TOLERANCE
    return Signed(bundle.chain_pem, bundle.ca_pem, (_SHORTENED,) if is_shorter else ())
