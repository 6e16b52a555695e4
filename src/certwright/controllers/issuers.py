"""Judge issuers: can they sign? The answer is the `Ready` condition of the Issuer or ClusterIssuer.

How to judge differs between kinds and lies in `issuers/`; when to judge and what to write lies here.

Source: cert-manager `pkg/controller/{issuers,clusterissuers}`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

from certwright.controllers.backoff import minimum_in
from certwright.controllers.cache.secrets import Dependents, Secrets
from certwright.controllers.cache.shard_filter import working_on
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.contract import AcmeTools, Checked, GetSecret, IssuerView, ServerTools, Tools
from certwright.issuers.table import ISSUERS, kind_of
from certwright.kit import logs
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.resources import names, operator_policy, reasons
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.operator_policy import OperatorPolicy


class IssuerTools(msgspec.Struct, frozen=True):
    """Makes the `Tools` of issuers. `acme` and `servers` make the parts for issuers whose Secrets are in a
    namespace; `policy` is the operator's."""

    toolbox: Toolbox
    secrets: Secrets
    acme: Callable[[str], AcmeTools]
    servers: Callable[[str], ServerTools]
    policy: OperatorPolicy

    def within(self, secrets_in: str, get_secret: GetSecret) -> Tools:
        """The tools of an issuer whose Secrets are in the namespace `secrets_in` and read by `get_secret`."""
        return Tools(
            get_secret=get_secret,
            executor=self.toolbox.executor,
            now=self.toolbox.now,
            acme=self.acme(secrets_in),
            servers=self.servers(secrets_in),
            post_quantum=self.policy.post_quantum,
        )


T = TypeVar("T", bound=Issuer | ClusterIssuer)

FAILED_EVENT = "ErrInitIssuer"
BAD_ANNOTATION_EVENT = "BadAnnotation"
NOT_ALLOWED = "NotAllowed"
"""The reason of the condition of an issuer that needs a flag of the operator's."""
_SOON: Final = timedelta(seconds=2)
"""How long a new issuer may lack its Secret, which a Certificate may be about to create, without a Warning
event."""

_log = logging.getLogger(__name__)


def view_of(kind: str, issuer: Issuer | ClusterIssuer) -> IssuerView:
    """The view of the issuer for its implementation."""
    meta = issuer.metadata
    return IssuerView(
        kind=kind,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        spec=issuer.spec,
        account=issuer.status.acme,
        ready_at=_ready_at(issuer),
        annotations=meta.annotations,
    )


def _ready_at(issuer: Issuer | ClusterIssuer) -> int | None:
    ready = conditions.find(issuer.status.conditions, reasons.READY)
    if ready is None or (ready.status != "True" and ready.reason != reasons.SOLVERS_NOT_VERIFIED):
        return None
    return ready.observed_generation


def is_ready(issuer: Issuer | ClusterIssuer) -> bool:
    """Whether the issuer was found able to sign."""
    return conditions.is_true(issuer.status.conditions, reasons.READY)


class SecretReader:
    """Reads Secrets on behalf of an object (`whose`), and adds each Secret to the object's `dependents`."""

    def __init__(self, secrets: Secrets, dependents: Dependents[ObjectKey], whose: ObjectKey) -> None:
        self._secrets = secrets
        self._dependents = dependents
        self._whose = whose
        self.read: set[ObjectKey] = set()
        self._ours: list[Secret] = []

    def within(self, namespace: str) -> Callable[[str], Awaitable[Mapping[str, bytes] | None]]:
        """A function that reads the data of a Secret of that namespace; None if it does not exist."""

        async def get_secret(name: str) -> Mapping[str, bytes] | None:
            key = ObjectKey(namespace, name)
            self._dependents.add(self._whose, key)
            self.read.add(key)
            secret = await self._secrets.get(key)
            if secret is not None and secret.metadata.labels.get(names.MANAGED_BY_LABEL) == names.MANAGER:
                self._ours.append(secret)
            return secret.data if secret is not None else None

        return get_secret

    async def restore_labels(self) -> None:
        """Restore the label of Secrets that we have made, if it was removed."""
        for secret in self._ours:
            await self._secrets.restore_label(secret)


class IssuerReconciler(Generic[T]):
    """Keeps the `Ready` condition of one of both kinds. `secrets_in` returns the namespace of an issuer's
    Secrets; `answered` is called when the issuer's server has answered a check."""

    def __init__(
        self,
        informer: Informer[T],
        tools: IssuerTools,
        answered: Callable[[ObjectKey], None],
        secrets_in: str = "",
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._tools = tools
        self._kind = informer.kind
        self._informer = informer
        self._secrets_in = secrets_in
        self._answered = answered
        self._toolbox = tools.toolbox
        self._status = tools.toolbox.status_of(informer)
        self._reported: dict[ObjectKey, str] = {}
        self._logged: dict[ObjectKey, str] = {}
        self._silent_until: dict[ObjectKey, datetime] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Check the issuer and write the verdict, if it has changed."""
        issuer = self._informer.cache.get(key)
        if issuer is None or issuer.metadata.deletion_timestamp is not None:
            self.dependents.keep_only(key, ())
            self._reported.pop(key, None)
            self._logged.pop(key, None)
            self._silent_until.pop(key, None)
            return Result()
        self._report_bad_annotation(key, issuer)
        checked = await self._check(key, issuer)
        try:
            with working_on(self._kind, key):
                await self._write(issuer, checked)
        except NotFound:
            return Result()
        if checked.is_answered:
            # After the write of Ready, because the released requests require it.
            self._answered(key)
        due = [self._toolbox.now() + checked.retry_after] if checked.retry_after else []
        if key in self._silent_until:
            due.append(self._silent_until[key])
        return Result(wake_at=min(due, default=None))

    def _report_bad_annotation(self, key: ObjectKey, issuer: T) -> None:
        try:
            minimum_in(issuer.metadata.annotations)
        except ValueError as error:
            if self._reported.get(key) != str(error):
                self._reported[key] = str(error)
                self._toolbox.recorder.event(self._kind, issuer, "Warning", BAD_ANNOTATION_EVENT, str(error))

    async def _check(self, key: ObjectKey, issuer: T) -> Checked:
        namespace = self._secrets_in or issuer.metadata.namespace
        reader = SecretReader(self._tools.secrets, self.dependents, key)
        tools = self._tools.within(namespace, reader.within(namespace))
        kind = kind_of(issuer.spec)
        if not kind:
            return Checked(
                ready=False, reason="IssuerTypeMissing", message="the spec configures no issuer type"
            )
        if (refused := self._not_allowed(key, issuer)) is not None:
            return refused
        checked = await ISSUERS[kind].check(view_of(self._kind.kind, issuer), tools)
        named = {ObjectKey(namespace, name) for name in checked.secrets}
        for secret in named:
            self.dependents.add(key, secret)
        self.dependents.keep_only(key, reader.read | named)
        await reader.restore_labels()
        return checked

    def _not_allowed(self, key: ObjectKey, issuer: T) -> Checked | None:
        """The verdict on an issuer whose spec the operator does not allow. The log names each such issuer
        once, with the flag: after an update these issuers have stopped working."""
        all_violations = operator_policy.issuer_violations(issuer.spec, self._tools.policy)
        # A URL of no server, which no flag allows, is for the kind itself to report.
        violations = [violation for violation in all_violations if violation.flag]
        if not violations:
            self._logged.pop(key, None)
            return None
        message = "; ".join(map(str, violations))
        if self._logged.get(key) != message:
            self._logged[key] = message
            _log.warning("%s %s is not Ready: %s", self._kind.kind, key, message)
        return Checked(ready=False, reason=NOT_ALLOWED, message=message)

    async def _write(self, issuer: T, checked: Checked) -> None:
        before = conditions.find(issuer.status.conditions, reasons.READY)
        after = Condition(
            type=reasons.READY,
            status="True" if checked.ready else "False",
            reason=checked.reason,
            message=checked.message,
            observed_generation=issuer.metadata.generation,
        )
        existing = conditions.with_condition(issuer.status.conditions, after, self._toolbox.now())
        account = checked.account or issuer.status.acme
        status = msgspec.structs.replace(issuer.status, conditions=existing, acme=account)
        changed = msgspec.structs.replace(issuer, status=status)
        written = await self._status.commit(self._kind, issuer, changed)
        # Only at a change, not at every check, because an issuer that is checked often would flood the
        # Events.
        is_same = before is not None and (before.status, before.reason, before.message) == (
            after.status,
            after.reason,
            after.message,
        )
        if is_same and issuer.metadata.key not in self._silent_until:
            return
        if not is_same:
            self._log_verdict(issuer, checked, was_ready=before is not None and before.status == "True")
        if self._is_silent(issuer.metadata.key, checked, is_new=before is None):
            return
        if not checked.ready:
            self._toolbox.recorder.event(self._kind, written, "Warning", FAILED_EVENT, checked.message)
        elif checked.message:
            reason = checked.event or checked.reason
            self._toolbox.recorder.event(self._kind, written, "Normal", reason, checked.message)

    def _is_silent(self, key: ObjectKey, checked: Checked, *, is_new: bool) -> bool:
        """Whether the Event of a new issuer without its Secret is deferred."""
        now = self._toolbox.now()
        if is_new and checked.lacks_secret:
            self._silent_until[key] = now + _SOON
        elif not checked.lacks_secret or self._silent_until.get(key, now) <= now:
            self._silent_until.pop(key, None)
        return key in self._silent_until

    def _log_verdict(self, issuer: T, checked: Checked, *, was_ready: bool) -> None:
        key = issuer.metadata.key
        if checked.reason == NOT_ALLOWED:
            # Logged by `_not_allowed`, once for each start.
            return
        logs.event(
            _log,
            # A new issuer often waits for a Secret for a moment.
            logging.WARNING if was_ready and not checked.ready else logging.INFO,
            "issuer ready" if checked.ready else "issuer not ready",
            subject=f"{self._kind.kind}/{key}",
            issuer=f"{self._kind.kind}/{key}",
            reason=checked.reason,
            cause=checked.message,
        )
