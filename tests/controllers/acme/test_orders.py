"""One pass over an Order: a table of what is known, and what the reconciler then does, writes and keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from certwright.acme.protocol import orders
from certwright.acme.protocol.errors import (
    AccountTrouble,
    AcmeError,
    ForeignUrl,
    Identifier,
    Problem,
    Refused,
    Unreachable,
)
from certwright.acme.protocol.exchange import Directory
from certwright.acme.protocol.orders import Download
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.order_challenges import NoSolver
from certwright.controllers.acme.order_progress import (
    Finalizing,
    OrderProgress,
    OrderTracker,
    Placed,
    Stage,
    Unplaced,
    recalled,
)
from certwright.controllers.acme.orders import OrderReconciler, OrderTools
from certwright.controllers.acme.waits import Announced, Pause, Wait
from certwright.controllers.requests.members import Failover
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.runtime.controller import Result
from certwright.pki import keys, signing
from certwright.pki.certificates import read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.resources import names
from certwright.resources.acme import (
    ACMEAuthorization,
    Challenge,
    ChallengeSpec,
    ChallengeStatus,
    Order,
    OrderSpec,
    OrderStatus,
)
from certwright.resources.issuer import ACMEIssuer, IssuerSpec
from certwright.resources.references import IssuerReference, SecretKeySelector
from certwright.resources.solver import Solver
from controllers.acme.passes import Around

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SERVER, ACCOUNT = "https://ca.example/directory", "https://ca.example/account/1"
URN = "urn:ietf:params:acme:error:"

ACME = ACMEIssuer(server=SERVER, private_key_secret_ref=SecretKeySelector(name="account"))
VIEW = IssuerView("Issuer", "acme", "n", "i", 1, "7", IssuerSpec(acme=ACME))
DIRECTORY = Directory(SERVER, f"{SERVER}/nonce", f"{SERVER}/account", f"{SERVER}/order")
WITH_ARI = dataclasses.replace(DIRECTORY, renewal_info="https://ca.example/ari")
ELSEWHERE = dataclasses.replace(
    DIRECTORY, url="https://x.example/", new_nonce="", new_account="", new_order=""
)

KEY, OTHER_KEY = (keys.generate(keys.KeyPlan(keys.KeyAlgorithm.ECDSA)) for _ in range(2))


def csr(*dns_names: str) -> bytes:
    """A signing request for those names."""
    return build_csr(CsrPlan(common_name="Root Y", dns_names=dns_names), KEY)


def downloaded(*dns_names: str, key: keys.PrivateKey = KEY, duration: timedelta = 3 * HOUR) -> Download:
    """A certificate for those names, issued two hours ago."""
    request = build_csr(CsrPlan(common_name="Root Y", dns_names=dns_names), key)
    pem = signing.self_sign(request, key=key, duration=duration, is_ca=False, usages=(), now=NOW - 2 * HOUR)
    return Download(pem, read_chain(pem))


SPEC = OrderSpec(
    request=csr("a.example.org"), issuer_ref=IssuerReference(name="acme"), dns_names=("a.example.org",)
)
RENEWING = replace(SPEC, replaces="aki.serial")
WIDER = replace(SPEC, request=csr("a.example.org", "b.example.org"))
TWO = replace(SPEC, dns_names=("a.example.org", "b.example.org"))
AT_HOME = {names.ACME_SERVER: SERVER, names.ACME_ACCOUNT: ACCOUNT}
META = ObjectMeta(name="o", namespace="n", uid="u", creation_timestamp=NOW, annotations=AT_HOME)
OLD = replace(META, creation_timestamp=NOW - HOUR)
FORMER = replace(META, annotations={})
MOVED = replace(META, annotations={**AT_HOME, names.ACME_SERVER: "https://old.example/"})
OTHER_ACCOUNT = replace(META, annotations={**AT_HOME, names.ACME_ACCOUNT: "2"})
DELETED = replace(META, deletion_timestamp=NOW)

BLANK = OrderStatus()
READ = ACMEAuthorization(
    url="https://ca.example/authz/1", identifier="a.example.org", wildcard=False, initial_state="pending"
)
SECOND_READ = replace(READ, url="2", identifier="b.example.org")
PENDING = OrderStatus(
    url="https://ca.example/order/1",
    finalize_url="https://ca.example/order/1/finalize",
    authorizations=(READ,),
    state="pending",
)
UNREAD = replace(PENDING, authorizations=(ACMEAuthorization(url=READ.url),))
PLACEMENT = {"url": PENDING.url, "finalize_url": PENDING.finalize_url, "state": "pending"}
GONE = "the server calls the order invalid: a.example.org is expired"
SUPERSEDED = {names.ACME_SUPERSEDED: "true"}
FAILOVER = Failover("another member signs", NOW + MINUTE)
LEFT = {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: "2026-11-23T12:01:00Z"}


def progress(stage: Stage | None = None, **changes: Any) -> OrderProgress:
    """The progress of an Order that has been at this account before."""
    return OrderProgress("u", stage or Unplaced(), account=SERVER + ACCOUNT, **changes)


def at_ca(status: str, others: tuple[str, ...] = (), **changes: Any) -> ServerOrder:
    """The order at the CA; `others`: authorizations beside the first."""
    return ServerOrder(PENDING.url, status, PENDING.finalize_url, (READ.url, *others), **changes)


def authorization(status: str, name: str = "a.example.org") -> orders.Authorization:
    """The authorization at the CA."""
    return orders.Authorization(READ.url, status, Identifier("dns", name))


def challenge(name: str, state: str = "", reason: str = "") -> Challenge:
    """A Challenge of the Order."""
    spec = ChallengeSpec(
        url="u",
        authorization_url=READ.url,
        dns_name=name,
        type="HTTP-01",
        token="t",
        key="k",
        solver=Solver(),
        issuer_ref=SPEC.issuer_ref,
    )
    return Challenge(spec=spec, status=ChallengeStatus(state=state, reason=reason))


def refused(problem: str, *, status: int = 400, retry_after: datetime | None = None) -> Refused:
    """The CA's refusal with a problem of that type."""
    document = Problem(type=URN + problem, detail="no", status=status)
    return Refused(document, status=status, retry_after=retry_after)


@dataclass
class Given:
    """An Order, what this process remembers of it, and what the CA (by the request's name) and the other
    parts (by the function's) answer."""

    status: OrderStatus = BLANK
    progress: OrderProgress | None = field(default_factory=progress)
    ca: Mapping[str, Any] = field(default_factory=dict)
    meta: ObjectMeta = META
    spec: OrderSpec = SPEC
    preferred_chain: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)


def placed(ca: Mapping[str, Any] | None = None, stage: Stage | None = None, **changes: Any) -> Given:
    """An Order that is placed. `changes` are of its progress, or the answers of other parts."""
    ours = {name: changes.pop(name) for name in list(changes) if name in OrderProgress.__struct_fields__}
    return Given(PENDING, progress(stage or Placed(), **ours), ca or {}, parts=changes)


@dataclass
class Did:
    """What the pass did, in order; what it changed of the status and the annotations; what is remembered
    (None: nothing), and when the Order is woken."""

    what: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    progress: OrderProgress | None = None
    wakes: datetime | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


def fails(what: str, state: str, reason: str, annotations: Mapping[str, str] | None = None) -> Did:
    """The Order has ended."""
    status = {"state": state, "reason": reason, "failure_time": NOW}
    steps = [what, "annotate" if annotations else "", "write", "event OrderFailed"]
    return Did(" ".join(filter(None, steps)), status, annotations=annotations or {})


def moved(what: str, place: str) -> Did:
    """The Order has ended because its issuer has left that server or account."""
    why = f'Issuer "acme" no longer uses {place}, where this order is; another Order takes its place'
    return fails(what, "errored", why, SUPERSEDED)


def announces(
    what: str, why: str, until: datetime | None = None, wakes: datetime | None = None, **remembered: Any
) -> Did:
    """The Order waits, which is written: for the reason `why`, with the time `until`. `remembered` is the
    progress."""
    announced = Announced(why, until)
    kept = progress(announced=announced, **remembered)
    return Did(what, {"reason": announced.text}, kept, wakes or until)


class Driver(Around):
    """An `OrderReconciler` whose surroundings answer as `given` says."""

    def __init__(self, given: Given) -> None:
        super().__init__(Order(metadata=given.meta, spec=given.spec, status=given.status), given.parts, NOW)
        self.ca = given.ca
        acme = replace(ACME, preferred_chain=given.preferred_chain)
        self.client = SimpleNamespace(
            directory_url=SERVER,
            kid=ACCOUNT,
            is_lost=False,
            directory=self._directory,
            missing_profile=self.later("", "profile", ""),
            run=self._run,
        )
        self.issuer = ResolvedIssuer(VIEW, acme, cast(Any, self.client))
        gate = SimpleNamespace(
            admit=self._admit,
            admit_continuation=self.part("admit_continuation"),
            ends_pause=self.part("ends_pause", default=False),
            placed=self.part("placed"),
            record_answer=self.part("answered"),
            record_failure=self.part("failure"),
        )
        tools = OrderTools(
            challenges=cast(Any, SimpleNamespace(ensure=self._ensure, delete=self.later("delete"))),
            orders_at=lambda _url: given.parts.get("orders_at", ()),
            superseded=lambda _order: given.parts.get("superseded", 0),
            wake=lambda _key: None,
            has_issued=lambda *_: given.parts.get("has_issued", True),
            is_proven=lambda item: item.status.state == "valid",
            refusal_of=lambda _order: given.parts.get("refusal", ""),
            resolve_issuer=self.later("", "issuer", self.issuer),
            circuit_gate=cast(Any, gate),
            limited=self.part("limited", default=True),
            recheck_issuer=self.part("distrust"),
            downloaded=self.later("", "downloaded"),
            find_failover=self._find_failover,
        )
        self.reconciler = OrderReconciler(self.informer, self.toolbox, tools)
        self.reconciler._status = self.committer
        self.reconciler._began_at = NOW - MINUTE
        if given.progress is not None:
            self.reconciler._tracker.keep(self.obj, given.progress)

    async def outcome(self) -> tuple[Did, Result]:
        """Run the pass."""
        key = self.obj.metadata.key
        result = await self.reconciler.reconcile(key)
        annotations = dict(self.obj.metadata.annotations.items() - self.before.metadata.annotations.items())
        kept = self.reconciler._tracker._progress.get(key)
        return Did(" ".join(self.log), self.changed_status(), kept, result.wake_at, annotations), result

    async def _directory(self) -> Directory:
        self.log.append("directory")
        return cast(Directory, self.ca.get("directory", WITH_ARI))

    async def _run(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        name = request.__name__
        self.log.append(f"{name} {options['replaces']}" if options.get("replaces") else name)
        answer = self.ca.get(name, authorization("pending") if name == "fetch_authorization" else None)
        if isinstance(answer, Exception):
            raise answer
        return answer[arguments[0]] if isinstance(answer, dict) else answer

    async def _admit(self, _order: Order, _issuer: ResolvedIssuer, replaces: bool) -> Wait | None:
        self.log.append("admit replacement" if replaces else "admit")
        return cast("Wait | None", self.answer("admit"))

    async def _find_failover(
        self, _order: Order, has_failed: bool, limited_until: datetime | None
    ) -> Failover | datetime | None:
        name = "after failure" if has_failed else "at limit" if limited_until is not None else "failover"
        return cast("Failover | datetime | None", self.answers.get(name))

    async def _ensure(self, *_arguments: Any) -> tuple[tuple[Challenge, ...], None]:
        self.log.append("ensure")
        return self.answer("challenges", WAITING[:1]), None

    async def patch(self, _kind: Any, _name: str, _namespace: str, patch: dict[str, Any]) -> Order:
        """Record new annotations."""
        self.log.append("annotate")
        annotations = {**self.obj.metadata.annotations, **patch["metadata"]["annotations"]}
        meta = replace(self.obj.metadata, annotations=annotations)
        return cast(Order, replace(self.obj, metadata=meta))


PROVEN: dict[str, Any] = {"challenges": (challenge("a.example.org", "valid"),)}
WAITING = tuple(challenge(f"{n}.example.org", "pending", f"reason {n}") for n in range(5))
PROOF = "0.example.org: reason 0"
FAILED: dict[str, Any] = {
    "challenges": (challenge("a.example.org", "invalid", "404"), challenge("b.example.org", "pending"))
}
LOST: dict[str, Any] = {"challenges": (challenge("a.example.org", "expired", "404"),)}
VALID = at_ca("valid", certificate="https://ca.example/cert/1")
CERTIFICATE = downloaded("a.example.org")
STORED = {"state": "valid", "certificate": CERTIFICATE.pem}
POLLED = Finalizing(NOW - SECOND, polls=2)
CONTESTED = replace(POLLED, is_contested=True)
OMITTED = {
    READ.url: authorization("valid"),
    "2": dataclasses.replace(authorization("pending", "b.example.org"), url="2"),
}
SLOW = Finalizing(NOW - HOUR, polls=30)
SOME = "3.example.org: reason 3; 4.example.org: reason 4"
MANY = "; ".join(f"{n}.example.org: reason {n}" for n in range(3)) + "; and 2 more"
SAME = "the CA has this order for Order m/first, too; it is ordered again when that has ended"
LIMIT = refused("rateLimited", status=429)
OURS, THEIRS = (Pause(NOW + MINUTE, NOW, is_ours=is_ours) for is_ours in (True, False))
SOON = Pause(NOW + 0.4 * SECOND, None, is_ours=True)
NEW = {"new_order": at_ca("pending")}
# An Order that is placed in this pass.
PLACED = Did(
    "admit new_order fetch_authorization write placed ensure write",
    {**PLACEMENT, "authorizations": (READ,), "reason": PROOF},
    progress(Placed(), described=(READ,), announced=Announced(PROOF)),
)
ASKED = {names.ACME_ATTEMPTS: "2026-11-23T12:00:00Z"}

CASES: dict[str, tuple[Given, Did]] = {
    # Before the issuer is known.
    "a deleted one is forgotten": (Given(meta=DELETED), Did()),
    "one that has failed keeps its Challenges": (Given(OrderStatus(state="errored")), Did()),
    "one that is valid needs no Challenges": (Given(OrderStatus(state="valid")), Did("delete")),
    "another member of the set signs": (
        Given(parts={"issuer": Wait("not ready"), "failover": FAILOVER}),
        fails("", "errored", "another member signs", LEFT),
    ),
    "one that repeats no request waits": (
        Given(parts={"refusal": "not approved"}),
        announces("write", "not approved"),
    ),
    "a wait that is written already is not written again": (
        Given(progress=progress(announced=Announced("not approved")), parts={"refusal": "not approved"}),
        Did(progress=progress(announced=Announced("not approved"))),
    ),
    "the attempts of a former version become annotations": (
        Given(OrderStatus(reason="no answer"), parts={"issuer": Wait("no answer")}),
        Did(
            "annotate write", {}, progress(announced=Announced("no answer")), None, {names.ACME_ATTEMPTS: ""}
        ),
    ),
    "an issuer that is no ACME issuer ends it": (
        Given(parts={"issuer": Wait("no ACME", is_final=True)}),
        fails("", "errored", "no ACME"),
    ),
    "an issuer that is not ready is waited for": (
        Given(parts={"issuer": Wait("not ready", NOW + MINUTE)}),
        announces("write", "not ready", NOW + MINUTE),
    ),
    "a brief wait is not written": (
        Given(parts={"issuer": Wait("a trial", NOW + SECOND, is_brief=True)}),
        Did(progress=progress(), wakes=NOW + SECOND),
    ),
    # With its issuer, before the CA is asked.
    "an order at another server ends": (
        Given(PENDING, meta=MOVED),
        moved("", "https://old.example/"),
    ),
    "an order of another account ends": (
        Given(PENDING, meta=OTHER_ACCOUNT),
        moved("", "account 2"),
    ),
    "a pause is kept": (
        Given(progress=progress(pause=OURS)),
        Did("ends_pause", {}, progress(pause=OURS), NOW + MINUTE),
    ),
    "a pause is kept that the CA has named": (
        Given(progress=progress(pause=THEIRS), parts={"ends_pause": True}),
        Did("", {}, progress(pause=THEIRS), NOW + MINUTE),
    ),
    "a hurried one ends the pause": (
        Given(progress=progress(pause=OURS, failures=1), ca=NEW, parts={"ends_pause": True}),
        dataclasses.replace(PLACED, what=f"ends_pause {PLACED.what}"),
    ),
    "a pause that is over": (Given(progress=progress(pause=Pause(NOW, NOW, True)), ca=NEW), PLACED),
    "a pause for another account does not apply": (
        Given(progress=replace(progress(pause=THEIRS, failures=3), account="another"), ca=NEW),
        PLACED,
    ),
    "after failures, the circuit breaker decides whether the CA is asked about a placed one": (
        placed(failures=1, admit_continuation=Wait("not asking the CA", NOW + HOUR, names_time=True)),
        announces(
            "admit_continuation write", "not asking the CA", wakes=NOW + HOUR, stage=Placed(), failures=1
        ),
    ),
    "an Order of a former version is at another server": (
        Given(PENDING, progress(Placed()), {"directory": ELSEWHERE}, FORMER),
        moved("directory", "https://ca.example"),
    ),
    "an Order of a former version is at this server": (
        Given(PENDING, progress(Placed()), {}, FORMER),
        announces("directory ensure write", PROOF, stage=Placed()),
    ),
    # Unplaced.
    "a new one is placed": (Given(ca=NEW), PLACED),
    "an unknown state of the CA counts as pending": (Given(ca={"new_order": at_ca("strange")}), PLACED),
    "a renewal names what it replaces": (
        Given(spec=RENEWING, ca=NEW),
        dataclasses.replace(
            PLACED,
            what="directory admit replacement new_order aki.serial fetch_authorization write placed "
            "ensure write",
        ),
    ),
    **{
        f"a renewal names no predecessor {why}": (
            dataclasses.replace(given, spec=RENEWING),
            dataclasses.replace(PLACED, what=f"directory {PLACED.what}"),
        )
        for why, given in {
            "of another account": Given(ca=NEW, parts={"has_issued": False}),
            "at a CA without renewal information": Given(ca={**NEW, "directory": DIRECTORY}),
            "that the CA has refused": Given(progress=progress(Unplaced(replaces_nothing=True)), ca=NEW),
        }.items()
    },
    "a limit is waited for, and ends the row of failures": (
        Given(progress=progress(failures=2), parts={"admit": Wait("limit", NOW + HOUR, names_time=True)}),
        announces("admit write", "limit", wakes=NOW + HOUR),
    ),
    "one without response may exist": (
        Given(progress=progress(Unplaced(may_exist=True)), ca={**NEW, "list_orders": ()}),
        dataclasses.replace(PLACED, what=PLACED.what.replace("new_order", "list_orders new_order")),
    ),
    "one of a previous process exists": (
        Given(
            meta=OLD,
            ca={
                "list_orders": [PENDING.url],
                "fetch_order": at_ca("pending", identifiers=(Identifier("dns", "a.example.org"),)),
            },
        ),
        dataclasses.replace(PLACED, what=PLACED.what.replace("new_order", "list_orders fetch_order")),
    ),
    "the CA gave the same order to another Order": (
        Given(
            ca=NEW, parts={"orders_at": (Order(metadata=ObjectMeta(name="first", namespace="m"), spec=SPEC),)}
        ),
        announces("admit new_order answered write", SAME, wakes=NOW + MINUTE),
    ),
    # Placed.
    "authorizations that a crash has lost are read, once": (
        Given(UNREAD, progress(Placed()), {"fetch_authorization": authorization("pending")}),
        Did(
            "fetch_authorization write ensure write",
            {"authorizations": (READ,), "reason": PROOF},
            progress(Placed(), described=(READ,), announced=Announced(PROOF)),
        ),
    ),
    "no solver fits": (
        placed(challenges=NoSolver("no solver")),
        announces("ensure event Solver write", "no solver", stage=Placed()),
    ),
    "no solver fits, still": (
        placed(challenges=NoSolver("no solver"), announced=Announced("no solver")),
        Did("ensure event Solver", {}, progress(Placed(), announced=Announced("no solver"))),
    ),
    "Challenges are waited for": (
        placed(challenges=(*PROVEN["challenges"], *WAITING[3:]), announced=Announced("x")),
        announces("ensure write", SOME, stage=Placed()),
    ),
    "many Challenges are waited for": (
        placed(challenges=WAITING),
        announces("ensure write", MANY, stage=Placed()),
    ),
    "a Challenge has failed, and the order has expired": (
        placed({"fetch_order": at_ca("expired")}, **FAILED),
        fails("ensure fetch_order", "expired", "a.example.org: 404"),
    ),
    "a Challenge has failed, and the order is still pending": (
        placed({"fetch_order": at_ca("pending")}, **FAILED),
        fails("ensure fetch_order", "invalid", "a.example.org: 404"),
    ),
    "the CA has lost the authorization of each Challenge that failed": (
        placed({"fetch_order": at_ca("invalid")}, **LOST),
        fails(
            "ensure fetch_order", "errored", "a.example.org: 404; another Order takes its place", SUPERSEDED
        ),
    ),
    "all are proven, and the certificate is there immediately": (
        placed({"finalize": VALID, "download": CERTIFICATE}, **PROVEN),
        Did("ensure finalize download write event Complete", STORED, progress(Finalizing(NOW, polls=0))),
    ),
    "all are proven, and the CA has yet to process it": (
        placed({"finalize": at_ca("processing")}, failures=2, **PROVEN),
        Did(
            "admit_continuation ensure finalize",
            {},
            progress(Finalizing(NOW), pause=replace(SOON, until=NOW + 0.1 * SECOND)),
            NOW + 0.1 * SECOND,
        ),
    ),
    "it is refused at the end": (
        placed({"finalize": at_ca("invalid", error=LIMIT.problem)}, **PROVEN),
        fails("ensure finalize", "invalid", f"no [429 {URN}rateLimited]"),
    ),
    # Finalizing.
    "it has been processed": (
        placed({"fetch_order": VALID, "download": CERTIFICATE}, POLLED),
        Did("fetch_order download write event Complete", STORED, progress(POLLED)),
    ),
    "it is valid without a certificate": (
        placed({"fetch_order": at_ca("valid")}, POLLED),
        Did("fetch_order", {}, progress(replace(POLLED, polls=3), pause=SOON), SOON.until),
    ),
    "it has become ready again, and stays so": (
        placed({"fetch_order": at_ca("ready"), "finalize": at_ca("ready")}, POLLED),
        Did(
            "fetch_order finalize",
            {},
            progress(replace(POLLED, polls=3, state="ready"), pause=SOON),
            SOON.until,
        ),
    ),
    "an authorization has expired since": (
        placed({"fetch_order": at_ca("invalid"), "fetch_authorization": authorization("expired")}, POLLED),
        fails(
            "fetch_order fetch_authorization", "errored", f"{GONE}; another Order takes its place", SUPERSEDED
        ),
    ),
    "it has, in the second order of a day": (
        placed(
            {"fetch_order": at_ca("invalid"), "fetch_authorization": authorization("expired")},
            POLLED,
            superseded=1,
        ),
        fails("fetch_order fetch_authorization", "invalid", GONE),
    ),
    "it is invalid after a refusal": (
        placed(
            {"fetch_order": at_ca("invalid"), "fetch_authorization": authorization("valid")},
            POLLED,
            complaint="caa",
            superseded=1,
        ),
        fails("fetch_order fetch_authorization", "invalid", "caa; the server calls the order invalid"),
    ),
    "the CA has lost it": (
        placed({"fetch_order": refused("malformed", status=404)}, POLLED),
        fails(
            "fetch_order answered",
            "errored",
            f"no [404 {URN}malformed]; another Order takes its place",
            {names.ACME_PROBLEM: "malformed", **SUPERSEDED},
        ),
    ),
    "it is processed for an hour": (
        placed({"fetch_order": at_ca("processing")}, SLOW),
        Did(
            "fetch_order write",
            {
                "reason": "the ACME server is processing the order; next step at 2026-11-23T12:12:00Z",
                "state": "processing",
            },
            progress(
                replace(SLOW, polls=31),
                pause=Pause(NOW + 12 * MINUTE, None, is_ours=True),
                announced=Announced("the ACME server is processing the order", NOW + 12 * MINUTE),
            ),
            NOW + 12 * MINUTE,
        ),
    ),
    "its state is unknown, and the CA names a time": (
        placed({"fetch_order": at_ca("review", retry_after=NOW + HOUR)}, POLLED),
        Did(
            "fetch_order annotate write",
            {
                "reason": 'the ACME server calls the order "review"; next step at 2026-11-23T13:00:00Z',
                "state": "processing",
            },
            progress(
                replace(POLLED, polls=3),
                pause=Pause(NOW + HOUR, None, is_ours=False),
                announced=Announced('the ACME server calls the order "review"', NOW + HOUR),
            ),
            NOW + HOUR,
            {names.NOT_BEFORE: "2026-11-23T13:00:00+00:00"},
        ),
    ),
    "a name is not proven any more": (
        placed({"finalize": at_ca("pending", retry_after=NOW + HOUR)}, **PROVEN),
        Did(
            "ensure finalize fetch_authorization annotate write",
            {
                "reason": 'the ACME server calls the order "pending": a.example.org is pending; next step at '
                "2026-11-23T13:00:00Z"
            },
            progress(
                Finalizing(NOW, 1, "pending"),
                pause=Pause(NOW + HOUR, None, is_ours=False),
                announced=Announced(
                    'the ACME server calls the order "pending": a.example.org is pending', NOW + HOUR
                ),
            ),
            NOW + HOUR,
            {names.NOT_BEFORE: "2026-11-23T13:00:00+00:00"},
        ),
    ),
    "a name that the answer to the new order has omitted is proven": (
        dataclasses.replace(
            placed({"finalize": at_ca("pending", others=("2",)), "fetch_authorization": OMITTED}, **PROVEN),
            spec=TWO,
        ),
        Did(
            "ensure finalize fetch_authorization fetch_authorization write ensure",
            {"authorizations": (READ, SECOND_READ)},
            progress(Placed(), described=(SECOND_READ,)),
            NOW,
        ),
    ),
    "a name of which the CA requests no proof": (
        dataclasses.replace(
            placed({"fetch_order": at_ca("pending"), "fetch_authorization": OMITTED}, SLOW), spec=TWO
        ),
        fails(
            "fetch_order fetch_authorization",
            "errored",
            'the ACME server calls the order "pending", but requests no proof of b.example.org',
        ),
    ),
    # The certificate.
    "a missing preferred chain is reported": (
        dataclasses.replace(
            placed({"fetch_order": VALID, "download": CERTIFICATE}, POLLED), preferred_chain="Root X"
        ),
        Did(
            "fetch_order download event PreferredChainMissing write event Complete", STORED, progress(POLLED)
        ),
    ),
    **{
        f"a certificate {which} is not stored": (
            dataclasses.replace(placed({"fetch_order": VALID, "download": certificate}, POLLED), spec=spec),
            fails("fetch_order download", "errored", f"the server returned a certificate {which}"),
        )
        for which, certificate, spec in (
            ("for another key", downloaded("a.example.org", key=OTHER_KEY), SPEC),
            ("that has expired", downloaded("a.example.org", duration=HOUR), SPEC),
            ("without b.example.org", CERTIFICATE, WIDER),
        )
    },
    "the certificate of a contested order is another client's": (
        placed({"fetch_order": VALID, "download": downloaded("b.example.org")}, CONTESTED, superseded=9),
        fails(
            "fetch_order download",
            "errored",
            "the server returned a certificate without a.example.org; another Order takes its place",
            SUPERSEDED,
        ),
    ),
    # Errors.
    "a name that was not ordered ends it": (
        Given(UNREAD, progress(Placed()), {"fetch_authorization": authorization("pending", "x.example.org")}),
        fails(
            "fetch_authorization write",
            "errored",
            'the ACME server requests a proof of "x.example.org", which was not ordered',
        ),
    ),
    "a signing request that cannot be read ends it": (
        dataclasses.replace(placed(**PROVEN), spec=replace(SPEC, request=b"")),
        fails(
            "ensure",
            "errored",
            "spec.request cannot be used: error decoding certificate request PEM block: it cannot be read "
            "(expected is PEM): Unable to load PEM file. MalformedFraming",
        ),
    ),
    "a URL of another server ends it": (
        placed({"fetch_order": ForeignUrl("https://x.example/1", SERVER)}, POLLED),
        fails("fetch_order", "errored", str(ForeignUrl("https://x.example/1", SERVER))),
    ),
    **{
        f"a new order that is {problem} ends it": (
            Given(ca={"new_order": refused(problem)}),
            fails(
                "admit new_order answered",
                "errored",
                f"no [400 {URN}{problem}]",
                {names.ACME_PROBLEM: problem},
            ),
        )
        for problem in ("rejectedIdentifier", "unauthorized")
    },
    "the CA does not finalize it": (
        placed({"finalize": refused("unauthorized", status=403), "fetch_order": at_ca("ready")}, **PROVEN),
        fails(
            "ensure finalize fetch_order answered",
            "errored",
            f"no [403 {URN}unauthorized]",
            {names.ACME_PROBLEM: "unauthorized"},
        ),
    ),
    **{
        f"{problem}: the predecessor is not named": (
            Given(
                progress=progress(failures=1),
                spec=RENEWING,
                ca={"new_order": refused(problem, status=status)},
            ),
            Did(
                "directory admit replacement new_order aki.serial",
                {},
                progress(Unplaced(replaces_nothing=True)),
                NOW,
            ),
        )
        for problem, status in {
            "alreadyReplaced": 409,
            "conflict": 409,
            "malformed": 400,
            "notFound": 404,
            "rejectedIdentifier": 400,
            "serverInternal": 500,
            "unauthorized": 403,
            "unheardOf": 422,
        }.items()
    },
    "after a failure, another member of the set signs": (
        Given(ca={"new_order": LIMIT}, parts={"after failure": FAILOVER}),
        fails(
            "admit new_order limited annotate failure",
            "errored",
            "another member signs",
            {**ASKED, **LEFT},
        ),
    ),
    # Another member of the set.
    "another member signs while the limits of this one let it wait": (
        Given(parts={"admit": Wait("limit", NOW + HOUR, is_limit=True), "at limit": FAILOVER}),
        fails("admit", "errored", "another member signs", LEFT),
    ),
    "a wait for its own names is no reason to leave": (
        Given(parts={"admit": Wait("DNS", NOW + HOUR, names_time=True), "at limit": FAILOVER}),
        announces("admit write", "DNS", wakes=NOW + HOUR),
    ),
    "it is asked again when it may leave its member": (
        placed(failover=NOW + MINUTE),
        announces("ensure write", PROOF, wakes=NOW + MINUTE, stage=Placed()),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_pass_does_follows_from_what_is_known(case: str) -> None:
    given, expected = CASES[case]
    did, _ = await Driver(given).outcome()
    assert did == expected


async def test_the_challenges_of_a_valid_order_are_deleted_when_nothing_else_is_to_be_done() -> None:
    driver = Driver(placed({"fetch_order": VALID, "download": CERTIFICATE}, POLLED))
    assert (await driver.outcome())[1] == Result(when_idle=True)


@pytest.mark.parametrize(
    ("error", "stage", "parts", "failures", "until", "what"),
    [
        (Unreachable("no response"), Unplaced(may_exist=True), {}, 0, SECOND, "annotate failure"),
        (Unreachable("no response"), Placed(is_ready=True), {}, 3, 8 * SECOND, "annotate failure"),
        (Unreachable("no response"), POLLED, {}, 30, 10 * MINUTE, "annotate failure"),
        (refused("serverInternal", status=500), POLLED, {}, 0, SECOND, "annotate failure"),
        (refused("accountDoesNotExist"), Unplaced(), {}, 0, SECOND, "distrust annotate failure"),
        (refused("accountDoesNotExist"), POLLED, {}, 0, SECOND, "distrust annotate failure"),
        (
            AccountTrouble(refused("unauthorized").problem, status=403),
            Unplaced(),
            {},
            0,
            SECOND,
            "distrust annotate failure",
        ),
        (LIMIT, Unplaced(), {"limited": True}, 0, SECOND, "limited annotate failure"),
        (LIMIT, Unplaced(), {"limited": False}, 0, SECOND, "limited annotate answered"),
        (LIMIT, POLLED, {}, 0, SECOND, "annotate failure"),
        (refused("rateLimited", retry_after=NOW + HOUR), POLLED, {}, 5, HOUR, "annotate failure"),
        (refused("rateLimited", retry_after=NOW - HOUR), POLLED, {}, 5, SECOND, "annotate failure"),
    ],
)
async def test_an_error_that_waiting_mends_is_recorded_and_pauses_the_order(
    error: AcmeError, stage: Stage, parts: dict[str, Any], failures: int, until: timedelta, what: str
) -> None:
    is_placed = not isinstance(stage, Unplaced)
    ca = {"new_order": error, "finalize": error, "fetch_order": error, "list_orders": ()}
    given = Given(
        PENDING if is_placed else OrderStatus(),
        progress(stage, failures=failures),
        ca,
        parts={**PROVEN, **parts},
    )
    driver = Driver(given)
    did, _ = await driver.outcome()
    named = error.retry_after if isinstance(error, Refused) else None
    assert did.what.endswith(f"{what} write")
    assert did.annotations[names.ACME_ATTEMPTS] == "2026-11-23T12:00:00Z"
    assert (names.NOT_BEFORE in did.annotations) is (named is not None)
    assert did.progress == progress(
        stage,
        failures=failures + 1,
        pause=Pause(NOW + until, NOW, is_ours=named is None),
        announced=Announced(did.status["reason"]),
        complaint=str(error) if isinstance(error, Refused) and is_placed else "",
    )
    assert did.wakes == NOW + until
    assert driver.client.is_lost is ("distrust" in what)


def test_after_a_restart_the_annotations_show_the_pause() -> None:
    asked = {names.ACME_ATTEMPTS: "2026-11-23T11:59:57Z,2026-11-23T11:59:59Z,2026-11-23T13:00:00Z"}
    order = Order(metadata=replace(META, annotations=asked), spec=SPEC)
    assert recalled(order, NOW) == OrderProgress(
        "u", failures=2, pause=Pause(NOW + SECOND, None, is_ours=True)
    )
    named = {**asked, names.NOT_BEFORE: "2026-11-23T12:30:00Z"}
    order = Order(metadata=replace(META, annotations=named), spec=SPEC)
    assert recalled(order, NOW).pause == Pause(NOW + 30 * MINUTE, None, is_ours=False)


def test_the_stage_agrees_with_the_order() -> None:
    tracker = OrderTracker()
    new = Order(metadata=META, spec=SPEC)
    with_url = replace(new, status=PENDING)
    assert tracker.of(new, NOW).stage == Unplaced()
    assert tracker.of(with_url, NOW).stage == Placed()
    tracker.keep(new, progress(Unplaced(may_exist=True)))
    assert tracker.of(with_url, NOW).stage == Placed()
    tracker.keep(new, progress(POLLED))
    assert tracker.of(with_url, NOW).stage == POLLED
    assert tracker.of(new, NOW).stage == Unplaced()
