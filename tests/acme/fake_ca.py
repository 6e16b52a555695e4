"""An ACME server (RFC 8555) as an object, at the level of `acme.protocol.messages`: no sockets, no clock.

It is no proof that we speak to real servers, Pebble is; it does what no real one does when asked to: refuse
with a given type of error, lose an answer, name a time to wait until, hand out a wrong certificate. It judges
nonces, URLs, accounts and states as a real one; signatures it does not verify, apart from external account
bindings.

    ca = FakeCa(clock.now)
    options = AcmeOptions(make_transport=ca.transport)
    ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after=3600, times=1)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from certwright.acme.protocol.errors import Unreachable
from certwright.acme.protocol.messages import Action, Request, Response, TlsOptions
from certwright.pki.certificates import certificate_id, read_certificate

Json = dict[str, Any]
T = TypeVar("T")
_TYPE = "urn:ietf:params:acme:error:"


class Refusal(Exception):
    """An answer that is a problem document."""

    def __init__(self, name: str, detail: str = "no", *, status: int = 400, retry_after: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.detail = detail
        self.status = status
        self.retry_after = retry_after

    def as_json(self) -> Json:
        if not self.name:
            return {}
        return {"type": _TYPE + self.name, "detail": self.detail, "status": self.status}


@dataclass(slots=True)
class Account:
    """An account of a customer."""

    url: str
    thumbprint: str
    contact: list[str] = field(default_factory=list)
    status: str = "valid"


@dataclass(slots=True)
class Authorization:
    """A name to be proven by an account."""

    url: str
    account: str
    kind: str
    value: str
    wildcard: bool
    token: str
    status: str = "pending"
    error: Json | None = None
    accepted: str = ""

    @property
    def name(self) -> str:
        return f"*.{self.value}" if self.wildcard else self.value


@dataclass(slots=True)
class Order:
    """An order; `payload` is what was sent."""

    url: str
    account: str
    authorizations: list[Authorization]
    payload: Json
    placed_at: datetime
    status: str = "pending"
    error: Json | None = None
    certificate: bytes = field(default=b"", repr=False)
    polls_left: int = 0
    replaced: str = ""
    """The identifier (RFC 9773 §4.1) of its certificate, once there is one."""

    @property
    def names(self) -> list[str]:
        return [identifier["value"] for identifier in self.payload["identifiers"]]


@dataclass(slots=True)
class _Plan:
    action: Action
    times: int
    act: Callable[[], None]
    after: bool


class FakeCa:
    """`now` is its clock. `requests` holds what it was asked, in order, those without an answer too."""

    def __init__(self, now: Callable[[], datetime], *, base: str = "https://ca.example") -> None:
        self.now = now
        self.base = base
        self.directory = f"{base}/directory"
        self.accounts: dict[str, Account] = {}
        self.orders: dict[str, Order] = {}
        self.authorizations: dict[str, Authorization] = {}
        self.requests: list[tuple[Action, str]] = []
        self.meta: Json = {}
        self.tokens = "token"
        self.eab_keys: dict[str, bytes] = {}
        self.verdicts: dict[str, Refusal] = {}
        """By name (with `*.`): why its proof is not accepted."""
        self.slow: set[str] = set()
        """Names whose proof the CA goes on looking at."""
        self.sees: Callable[[Authorization, str], bool] | None = None
        """Whether the proof of that type is where the CA looks; None: it does not look."""
        self.lists_orders = True
        self.processing_polls = 0
        """How often an order is still `processing` when it is asked after."""
        self.tamper: Callable[[x509.CertificateBuilder, x509.CertificateSigningRequest], Any] | None = None
        """Changes a certificate before it is signed."""
        self.before: Callable[[Action, Json], None] | None = None
        """Called with each request that is well signed; raises `Refusal` for those it does not like."""
        self.suggests: Callable[[str], Json] | None = None
        """What it says of the renewal of the certificate with that identifier; None: it offers nothing of the
        kind. Raises `Refusal`."""
        self.renewal_retry_after = ""
        self.reuse_authorizations = False
        self.reuses_orders: tuple[str, ...] = ("pending", "ready")
        """In which states an order of the account is the answer to a new one for the same names: Boulder's
        (`GetOrderForNames`)."""
        self.calls_processing = "processing"
        """What it calls the state `processing` of orders."""
        self.authorization_states: dict[str, str] = {}
        """By ordered name: what it calls the state of its authorization."""
        self.answers_with: dict[str, str] = {}
        """By ordered name: the identifier that its authorization is made for instead."""
        self.order_base = base
        """Where the URLs of orders begin, which may be another server."""
        self.lowers_names = True
        """Whether names are written in small letters, each once, as Boulder does; Pebble keeps them."""
        self.lifetime = timedelta(days=90)
        self.refuses_certificate_keys = ""
        """The type by which it refuses a revocation that the certificate's key has signed, as acme2certifier
        does; empty: it accepts it."""
        self.path = ""
        """Where the URLs in its directory are, below `base`; it knows no former ones."""
        self.is_away = False
        """Whether no request is answered, or each with `status_while_away` where that is not 0."""
        self.status_while_away = 0
        self._plans: list[_Plan] = []
        self._nonces: set[str] = set()
        self._numbers = itertools.count(1)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fake CA")])
        self._root = self._sign_root()

    def transport(self, _tls: TlsOptions | None = None) -> _Transport:
        """What a client sends its requests by."""
        return _Transport(self)

    def refuse(
        self,
        action: Action,
        name: str,
        detail: str = "no",
        *,
        status: int = 400,
        retry_after: str = "",
        times: int = 1,
    ) -> None:
        """Refuse the next `times` requests of that kind with that type of error (empty: no document)."""

        def act() -> None:
            raise Refusal(name, detail, status=status, retry_after=retry_after)

        self._plans.append(_Plan(action, times, act, after=False))

    def lose(self, action: Action, *, after: bool, times: int = 1) -> None:
        """Let requests of that kind get no answer: before they are heard, or `after` they were obeyed."""

        def act() -> None:
            raise Unreachable("the line is cut")

        self._plans.append(_Plan(action, times, act, after=after))

    def counted(self) -> Counter[Action]:
        """How many requests of each kind there were."""
        return Counter(action for action, _ in self.requests)

    @property
    def root_pem(self) -> bytes:
        return self._root.public_bytes(Encoding.PEM)

    def answer(self, request: Request) -> Response:
        """What one request gets. Raises `Unreachable` where that was asked for."""
        self.requests.append((request.action, request.url))
        if self.is_away and not self.status_while_away:
            raise Unreachable("connection refused")
        if self.is_away:
            return self._refused(request, Refusal("", status=self.status_while_away))
        try:
            self._act(request.action, after=False)
            response = self._respond(request)
        except Refusal as refusal:
            return self._refused(request, refusal)
        self._act(request.action, after=True)
        return response

    def _act(self, action: Action, *, after: bool) -> None:
        for plan in self._plans:
            if plan.action is action and plan.after is after and plan.times:
                plan.times -= 1
                plan.act()
                return

    def _respond(self, request: Request) -> Response:
        if request.action is Action.DIRECTORY:
            return self._ok(request, self._places())
        if request.action in (Action.NEW_NONCE, Action.NEW_ACCOUNT, Action.NEW_ORDER) and (
            request.url != self._places()[request.action]
        ):
            raise Refusal("malformed", "not found", status=404)
        if request.action is Action.NEW_NONCE:
            return self._ok(request, None)
        if request.action is Action.RENEWAL_INFO:
            return self._renewal_info(request)
        body = json.loads(request.body)
        header, text = json.loads(_unb64(body["protected"])), _unb64(body["payload"])
        payload: Json = json.loads(text) if text else {}
        if header["nonce"] not in self._nonces:
            raise Refusal("badNonce", "unknown nonce")
        self._nonces.discard(header["nonce"])
        if header["url"] != request.url:
            raise Refusal("unauthorized", "signed for another URL", status=403)
        if request.action is Action.NEW_ACCOUNT:
            return self._new_account(request, header, payload)
        if request.action is Action.REVOKE_CERT and "jwk" in header and not self.refuses_certificate_keys:
            return self._ok(request, {})
        if request.action is Action.REVOKE_CERT and "jwk" in header:
            raise Refusal(self.refuses_certificate_keys, "signed by no account", status=403)
        account = self._account(header)
        if self.before is not None:
            self.before(request.action, payload)
        return self._signed(request, account, payload)

    def _signed(self, request: Request, account: Account, payload: Json) -> Response:
        match request.action:
            case Action.ACCOUNT:
                account.contact = payload.get("contact", account.contact)
                account.status = payload.get("status", account.status)
                return self._ok(request, self._of_account(account))
            case Action.ORDERS:
                urls = [o.url for o in self.orders.values() if o.account == account.url]
                return self._ok(request, {"orders": urls})
            case Action.NEW_ORDER:
                return self._new_order(request, account, payload)
            case Action.ORDER:
                return self._ok(request, self._of_order(self._polled(_at(self.orders, request.url))))
            case Action.AUTHORIZATION:
                authorization = _at(self.authorizations, request.url)
                authorization.status = payload.get("status", authorization.status)
                return self._ok(request, self._of_authorization(authorization))
            case Action.CHALLENGE:
                return self._accept(request)
            case Action.FINALIZE:
                return self._finalize(request, payload)
            case Action.CERTIFICATE:
                order = self.orders[request.url.replace("/certificate/", "/order/")]
                return self._ok(request, order.certificate)
            case Action.REVOKE_CERT:
                return self._ok(request, {})
            case _:
                raise Refusal("malformed", f"{request.action} is not served", status=404)

    def _places(self) -> Json:
        names: tuple[str, ...] = ("newNonce", "newAccount", "newOrder", "keyChange", "revokeCert")
        if self.suggests is not None:
            names += ("renewalInfo",)
        return {name: f"{self.base}{self.path}/{name}" for name in names} | {"meta": self.meta}

    def _renewal_info(self, request: Request) -> Response:
        if self.suggests is None:
            raise Refusal("malformed", "renewal information is not served", status=404)
        headers = [("retry-after", self.renewal_retry_after)] if self.renewal_retry_after else []
        window = self.suggests(request.url.rpartition("/")[2])
        return self._response(request, 200, headers, json.dumps(window).encode())

    def _new_account(self, request: Request, header: Json, payload: Json) -> Response:
        thumbprint = hashlib.sha256(json.dumps(header["jwk"], sort_keys=True).encode()).hexdigest()
        account = next(
            (account for account in self.accounts.values() if account.thumbprint == thumbprint), None
        )
        if account is None and payload.get("onlyReturnExisting"):
            raise Refusal("accountDoesNotExist", "no account with that key")
        if account is not None and account.status == "deactivated":
            raise Refusal("unauthorized", "the account has been deactivated", status=403)
        if account is None:
            self._check_binding(payload, json.loads(request.body)["protected"])
            url = f"{self.base}/account/{next(self._numbers)}"
            account = self.accounts[url] = Account(url, thumbprint, payload.get("contact", []))
            return self._ok(request, self._of_account(account), status=201, location=url)
        return self._ok(request, self._of_account(account), location=account.url)

    def _check_binding(self, payload: Json, outer: str) -> None:
        """As Vault and OpenBao, which compare the bytes of the bound key with those of the outer header's."""
        binding = payload.get("externalAccountBinding")
        if binding is None:
            if self.eab_keys:
                raise Refusal("externalAccountRequired", "an external account binding is needed", status=403)
            return
        key = self.eab_keys.get(json.loads(_unb64(binding["protected"]))["kid"], b"")
        signed = f"{binding['protected']}.{binding['payload']}".encode()
        if hmac.new(key, signed, hashlib.sha256).digest() != _unb64(binding["signature"]):
            raise Refusal("unauthorized", "the external account binding is not signed rightly", status=403)
        if b'"jwk":' + _unb64(binding["payload"]) not in _unb64(outer):
            raise Refusal("malformed", "eab payload does not match outer JWK key")

    def _account(self, header: Json) -> Account:
        account = self.accounts.get(header.get("kid", ""))
        if account is None:
            raise Refusal("accountDoesNotExist", "no such account")
        if account.status != "valid":
            raise Refusal("unauthorized", f"the account is {account.status}", status=403)
        return account

    def _new_order(self, request: Request, account: Account, payload: Json) -> Response:
        if self.lowers_names:
            # Boulder's `UniqueLowerNames`, on orders and on signing requests.
            lowered = {
                (identifier["type"], identifier["value"].lower()) for identifier in payload["identifiers"]
            }
            payload["identifiers"] = [{"type": kind, "value": value} for kind, value in sorted(lowered)]
        for requested_name in payload["identifiers"]:
            if requested_name["value"].endswith(".") or "_" in requested_name["value"]:
                raise Refusal("malformed", f"Invalid identifiers requested: {requested_name['value']}")
        if "replaces" in payload:
            self._check_replaces(account, payload)
        for existing in self.orders.values():
            is_alike = _essence(existing.payload) == _essence(payload) and existing.account == account.url
            if is_alike and self._polled(existing).status in self.reuses_orders:
                return self._ok(request, self._of_order(existing), status=201, location=existing.url)
        requested = [(identifier["type"], identifier["value"]) for identifier in payload["identifiers"]]
        authorizations = [self._authorize(account, kind, value) for kind, value in requested]
        url = f"{self.order_base}/order/{next(self._numbers)}"
        order = self.orders[url] = Order(url, account.url, authorizations, payload, self.now())
        return self._ok(request, self._of_order(self._polled(order)), status=201, location=url)

    def _check_replaces(self, account: Account, payload: Json) -> None:
        """As Boulder's `validateReplacementOrder`; a CA without renewal information refuses the member."""
        if self.suggests is None:
            raise Refusal("malformed", "unknown field replaces")
        replaced = payload["replaces"]
        former = next((order for order in self.orders.values() if order.replaced == replaced), None)
        if former is None:
            raise Refusal("malformed", "no known issuer matches the provided Authority Key Identifier")
        if former.account != account.url:
            raise Refusal(
                "unauthorized",
                "requester account did not request the certificate being replaced",
                status=403,
            )
        if not _names(former.payload) & _names(payload):
            raise Refusal("malformed", "identifiers in this order do not match any in the certificate")
        if any(order.payload.get("replaces") == replaced for order in self.orders.values()):
            raise Refusal("alreadyReplaced", "the certificate has been replaced", status=409)

    def _authorize(self, account: Account, kind: str, value: str) -> Authorization:
        value = self.answers_with.get(value, value)
        plain, wildcard = value.removeprefix("*."), value.startswith("*.")
        if self.reuse_authorizations:
            for authorization in self.authorizations.values():
                if (authorization.account, authorization.name, authorization.status) == (
                    account.url,
                    value,
                    "valid",
                ):
                    return authorization
        number = next(self._numbers)
        url = f"{self.base}/authz/{number}"
        made = Authorization(url, account.url, kind, plain, wildcard, f"{self.tokens}-{number}")
        self.authorizations[url] = made
        return made

    def _accept(self, request: Request) -> Response:
        url, _, kind = request.url.replace("/challenge/", "/authz/").rpartition("/")
        authorization = _at(self.authorizations, url)
        if authorization.status != "pending" or authorization.accepted:
            raise Refusal("malformed", "the challenge is not pending")
        authorization.accepted = kind
        if authorization.name not in self.slow:
            self.decide(authorization)
        return self._ok(request, self._challenge(authorization, kind))

    def decide(self, authorization: Authorization) -> None:
        """Pass the verdict on a name."""
        wrong = self.verdicts.get(authorization.name)
        if self.sees is not None and not self.sees(authorization, authorization.accepted):
            wrong = Refusal("connection", f"nothing is shown for {authorization.name}")
        authorization.status = "invalid" if wrong is not None else "valid"
        authorization.error = wrong.as_json() if wrong is not None else None

    def _finalize(self, request: Request, payload: Json) -> Response:
        order = self._polled(_at(self.orders, request.url.removesuffix("/finalize")))
        if order.status != "ready":
            raise Refusal("orderNotReady", f"the order is {order.status}", status=403)
        csr = x509.load_der_x509_csr(_unb64(payload["csr"]))
        signed = self._sign(csr)
        order.certificate = signed + self.root_pem
        order.replaced = certificate_id(read_certificate(signed))
        order.polls_left = self.processing_polls
        order.status = "processing" if order.polls_left else "valid"
        return self._ok(request, self._of_order(order))

    def issue_for_another_key(self, order: Order) -> None:
        """Issue the certificate of an order to another client of its account."""
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in order.names])
        csr = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name([]))
            .add_extension(names, critical=False)
            .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        )
        order.certificate, order.status = self._sign(csr) + self.root_pem, "valid"

    def _polled(self, order: Order) -> Order:
        states = {authorization.status for authorization in order.authorizations}
        if order.status == "processing":
            order.polls_left -= 1
            order.status = "valid" if order.polls_left <= 0 else "processing"
        elif order.status == "pending" and states == {"valid"}:
            order.status = "ready"
        elif order.status == "pending" and states - {"valid", "pending"}:
            order.status = "invalid"
        return order

    def _of_account(self, account: Account) -> Json:
        document: Json = {"status": account.status, "contact": account.contact}
        return document | ({"orders": f"{account.url}/orders"} if self.lists_orders else {})

    def _of_order(self, order: Order) -> Json:
        document: Json = {
            "status": self.calls_processing if order.status == "processing" else order.status,
            "identifiers": order.payload["identifiers"],
            "authorizations": [authorization.url for authorization in order.authorizations],
            "finalize": f"{order.url}/finalize",
        }
        if order.status == "valid":
            document["certificate"] = order.url.replace("/order/", "/certificate/")
        return document | ({"error": order.error} if order.error else {})

    def _of_authorization(self, authorization: Authorization) -> Json:
        kinds: Sequence[str] = ("http-01", "dns-01", "tls-alpn-01")
        if authorization.wildcard:
            kinds = ("dns-01",)
        return {
            "status": self.authorization_states.get(authorization.name, authorization.status),
            "identifier": {"type": authorization.kind, "value": authorization.value},
            "challenges": [self._challenge(authorization, kind) for kind in kinds],
            **({"wildcard": True} if authorization.wildcard else {}),
        }

    def _challenge(self, authorization: Authorization, kind: str) -> Json:
        url = f"{authorization.url.replace('/authz/', '/challenge/')}/{kind}"
        status = authorization.status if kind == authorization.accepted else "pending"
        if authorization.accepted == kind and status == "pending":
            status = "processing"
        error = (
            {"error": authorization.error} if authorization.error and kind == authorization.accepted else {}
        )
        return {"url": url, "type": kind, "token": authorization.token, "status": status, **error}

    def _ok(
        self,
        request: Request,
        body: Mapping[str, Any] | bytes | None,
        *,
        status: int = 200,
        location: str = "",
    ) -> Response:
        headers = [("location", location)] if location else []
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self._response(request, status, headers, content)

    def _refused(self, request: Request, refusal: Refusal) -> Response:
        headers = [("retry-after", refusal.retry_after)] if refusal.retry_after else []
        document = refusal.as_json()
        content = json.dumps(document).encode() if document else b"<html>Bad Gateway</html>"
        return self._response(request, refusal.status, headers, content)

    def _response(
        self, request: Request, status: int, headers: list[tuple[str, str]], body: bytes
    ) -> Response:
        if request.action is not Action.DIRECTORY:
            nonce = f"nonce-{next(self._numbers)}"
            self._nonces.add(nonce)
            headers = [*headers, ("replay-nonce", nonce)]
        return Response(status, tuple(headers), body, request.url, self.now())

    def _sign(self, csr: x509.CertificateSigningRequest) -> bytes:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if self.lowers_names:
            hosts = sorted({name.lower() for name in names.get_values_for_type(x509.DNSName)})
            others = [name for name in names if not isinstance(name, x509.DNSName)]
            names = x509.SubjectAlternativeName([*map(x509.DNSName, hosts), *others])
        builder: Any = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._name)
            .public_key(csr.public_key())
            .serial_number(next(self._numbers))
            .not_valid_before(self.now())
            .not_valid_after(self.now() + self.lifetime)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if self.tamper is not None:
            builder = self.tamper(builder, csr)
        if not any(
            isinstance(extension.value, x509.SubjectAlternativeName) for extension in builder._extensions
        ):
            builder = builder.add_extension(names, critical=True)
        signed: x509.Certificate = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(Encoding.PEM)

    def _sign_root(self) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(self.now() - timedelta(days=1))
            .not_valid_after(self.now() + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(slots=True)
class _Transport:
    ca: FakeCa

    async def send(self, request: Request) -> Response:
        return self.ca.answer(request)

    async def close(self) -> None:
        """See `Transport`."""


def _at(table: Mapping[str, T], url: str) -> T:
    if url not in table:
        raise Refusal("malformed", "no such object", status=404)
    return table[url]


def _names(payload: Json) -> set[str]:
    return {identifier["value"] for identifier in payload["identifiers"]}


def _essence(payload: Json) -> tuple[set[str], Any]:
    """What Boulder compares before it reuses an order."""
    return _names(payload), payload.get("profile")


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
