"""Prove one name: present the solution, self-check it, notify the CA, wait for its verdict, clean up.

Wakes on:  Challenge; an ended self-check; a slot that has become free; its issuer; Secrets of its solver
Reads:     Challenge, issuer
Writes:    Challenge.status: presented, processing, reason, state; the finalizer
Next:      orders

Short-lived states are not persisted: when a name is proven immediately, the Order is notified without a
write, and the Challenge is deleted with the Order's success; if it still exists then, its status becomes
valid.

Source: cert-manager design "ACME Order & Challenge CRDs"; `pkg/controller/acmechallenges/sync.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from certwright.controllers.acme import announcing
from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.challenge_state import Work, is_blank, is_offered, wanted_by
from certwright.controllers.acme.circuit_gate import Sparing
from certwright.controllers.acme.pace import Pace
from certwright.controllers.acme.priorities import flow_of
from certwright.controllers.acme.scheduler import Slots
from certwright.controllers.acme.self_checks import Checks
from certwright.controllers.acme.ways import Wait, Way
from certwright.controllers.cache.own_writes import working_on
from certwright.controllers.retry.backoff import LONGEST_OBEYED
from certwright.kit.outgoing import quote
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime import idle_priority
from certwright.kube.runtime.commit import StatusWriter
from certwright.kube.runtime.controller import Result
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.backoff import doubled
from certwright.kube.util.durations import parse_duration
from certwright.resources import causes, names
from certwright.resources.challenge import Challenge
from certwright.resources.table import CHALLENGES

if TYPE_CHECKING:
    # Loaded with the first Challenge: see `_make_work`.
    from certwright.acme.protocol.authorizations import Authorization
    from certwright.acme.protocol.errors import AcmeError
    from certwright.acme.solvers.contract import NotYet, Ready
    from certwright.controllers.acme.solver_factory import Means

VALID = "Successfully authorized domain"
_FIRST_LOOK = timedelta(seconds=0.25)
# A live name answers immediately. A dead one must not keep later ones waiting: the first self-check is short,
# later ones (which queue behind every first one) take the time that they need.
_FIRST_LOOK_TAKES_S = 1.5
_LONGEST_POLL = timedelta(seconds=10)
# For a name that is never proven: the CA's authorization expires some day, and the CA reports it when asked.
_ASK_THE_SERVER = timedelta(hours=6)
# A verdict that takes longer is worth four writes, because the reason is copied to four objects.
_VERDICT_UNTOLD = timedelta(seconds=3)
# A verdict is written if the Order, which knows it, has not ended by then. The Order may be delayed once for
# its last pass, and once more for the deletion of the Challenge.
_PROOF_UNTOLD = 2 * timedelta(seconds=idle_priority.AT_MOST_S)

# States of an authorization (RFC 8555 §7.1.6) that settle its challenge. Unknown ones are waited out, like
# unknown states of orders.
_VERDICTS = frozenset({"valid", "invalid", "deactivated", "expired", "revoked"})
_NOT_OFFERED = "the ACME server does not offer this challenge for this name at {}"

_log = logging.getLogger(__name__)

FindWay = Callable[[Challenge], Awaitable[Way | Wait]]
ProblemOf = Callable[[Challenge, Way], str]
"""Why a Challenge must not be acted on, as a sentence; empty where it may be: see `provenance.py`."""
FindMeans = Callable[[Challenge], Awaitable["Means"]]
"""Raises `SolverError` where the challenge cannot be answered."""


class ChallengeReconciler:
    """Concurrently, `most` challenges are with the CA and `looks` are self-checked. `check_period` is the
    longest wait between two self-checks of a recent challenge. `tell_order` enqueues the Order of a
    Challenge, which then calls `is_proven`; without it every verdict is written immediately. `is_described`
    says whether this process has read the challenge from the CA itself; other Challenges are compared with
    the CA first. `order_ended` says that the Challenge's Order has failed, as a sentence; empty where it has
    not.
    """

    def __init__(
        self,
        *,
        challenges: Informer[Challenge],
        problem_of: ProblemOf,
        problem_of_clean_up: Callable[[Challenge], Awaitable[str]],
        is_described: Callable[[Challenge], bool],
        order_ended: Callable[[Challenge], str],
        find_way: FindWay,
        find_means: FindMeans,
        sparing: Sparing,
        wake: Callable[[ObjectKey], None],
        status: StatusWriter[Challenge],
        client: Client,
        recorder: Recorder,
        now: Callable[[], datetime],
        tell_order: Callable[[Challenge], None] | None = None,
        most: int = 60,
        looks: int = 100,
        check_period: timedelta = timedelta(seconds=10),
    ) -> None:
        self._challenges = challenges
        self._problem_of = problem_of
        self._problem_of_clean_up = problem_of_clean_up
        self._is_described = is_described
        self._order_ended = order_ended
        self._find_way = find_way
        self._find_means = find_means
        self._sparing = sparing
        self._status = status
        self._client = client
        self._recorder = recorder
        self._now = now
        self._tell_order = tell_order
        self._check_period = check_period
        self._work: dict[ObjectKey, Work] = {}
        self.refused: set[ObjectKey] = set()
        """Challenges that are not acted on until their Order changes."""
        # In a row, of the Challenge with that UID.
        self._failures: dict[ObjectKey, tuple[str, int]] = {}
        self._announced: dict[ObjectKey, Announced] = {}
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)

        def granted(key: Hashable) -> None:
            assert isinstance(key, ObjectKey)
            wake(key)

        self.slots = Slots(most, granted)
        self.checks: Checks[ObjectKey, Ready | NotYet] = Checks(looks, wake)

    async def close(self) -> None:
        """Cancel all self-checks."""
        await self.checks.close()

    def is_seen(self, key: ObjectKey) -> bool:
        """Whether this process has seen the proof in a self-check."""
        work = self._work.get(key)
        if work is None:
            return False
        from certwright.acme.solvers.contract import Ready  # see `_make_work`

        return work.is_seen or isinstance(self.checks.peek(key), Ready)

    def is_proven(self, challenge: Challenge) -> bool:
        """Whether the CA has called the challenge valid, though its status may not say so yet."""
        work = self._work.get(challenge.metadata.key)
        is_told = work is not None and work.uid == challenge.metadata.uid and work.proven_at is not None
        return is_told or challenge.status.state == "valid"

    async def reconcile(self, key: ObjectKey) -> Result:
        """One step. Raises what writes to the API raise."""
        # A pass continues from its own writes: a reason that names the next try must not cause it.
        with working_on(CHALLENGES, key):
            return await self._pass(key)

    async def _pass(self, key: ObjectKey) -> Result:
        challenge = self._challenges.cache.get(key)
        work = self._work.get(key)
        if work is not None and (challenge is None or challenge.metadata.uid != work.uid):
            await self._drop(key, work)
        if challenge is None:
            self._failures.pop(key, None)
            self._announced.pop(key, None)
            self.refused.discard(key)
            return Result()
        if challenge.metadata.deletion_timestamp is not None:
            return await self._end(challenge)
        if challenge.status.is_final:
            return await self._tidy(challenge)
        if work is not None and work.proven_at is not None:
            return await self._say_proven(challenge, work.proven_at)
        if ended := self._order_ended(challenge):
            return await self._stop(challenge, ended)
        way = await self._find_way(challenge)
        if isinstance(way, Wait):
            if way.is_final:
                return await self._stop(challenge, way.why, state="errored")
            self._release(key)
            return await self._wait(challenge, way.why, way.until)
        if problem := self._problem_of(challenge, way):
            return await self._refuse(challenge, problem)
        self.refused.discard(key)
        return await self._go(challenge, way)

    async def _refuse(self, challenge: Challenge, problem: str) -> Result:
        """Report why the Challenge is not acted on; what this process presents for it is removed."""
        self.refused.add(challenge.metadata.key)
        if challenge.status.reason != problem:
            self._recorder.event(CHALLENGES, challenge, "Warning", "Refused", problem)
        return await self._stop(challenge, problem)

    async def _stop(self, challenge: Challenge, why: str, **changes: str) -> Result:
        """Stop a Challenge that is kept for reading; its proof is removed."""
        key = challenge.metadata.key
        self._release(key)
        work = self._work.get(key)
        if work is None and challenge.status.presented:
            is_away = await self._must_not_clean_up(challenge)
        else:
            is_away = work is None or work.presented_at is None
        if not is_away and not await self._clean_up(challenge, work):
            return Result(wake_at=self._later(challenge))
        self._work.pop(key, None)
        await self._write(challenge, reason=why, processing=False, presented=False, **changes)
        return Result()

    async def _go(self, challenge: Challenge, way: Way) -> Result:
        from certwright.acme.protocol.errors import AcmeError  # see `_make_work`
        from certwright.acme.solvers.contract import SolverError

        key = challenge.metadata.key
        work = self._work.get(key)
        if work is not None and work.not_before is not None and self._now() < work.not_before:
            # The CA has named the time, or is unavailable: other wake-ups do not change that.
            is_hurried = work.is_patience and self._sparing.is_hurried(challenge, work.waits_since)
            if not is_hurried:
                return Result(wake_at=work.not_before)
        if (held := self._sparing.may_go_on(challenge)) is not None:
            self._release(key)
            return await self._wait(challenge, held.why, held.until)
        try:
            work = self._work.get(key) or await self._make_work(challenge, way)
            self._work[key] = work
            result = await self._advance(challenge, work, way)
        except SolverError as error:
            self._release(key)
            if (work := self._work.get(key)) is not None and work.presented_at is None:
                # Another Secret, or another listener, may help: build the solver again.
                del self._work[key]
            told = f"Error presenting challenge: {error}"
            before = self._announced.get(key)
            if before is None or not before.why.startswith(told):
                self._recorder.event(CHALLENGES, challenge, "Warning", "PresentError", told)
            until = self._later(challenge)
            return await self._wait(
                challenge, told, until, announced=announcing.announced_retry(self._now(), told, until)
            )
        except AcmeError as error:
            return await self._take(challenge, error)
        self._failures.pop(key, None)
        return result

    async def _make_work(self, challenge: Challenge, way: Way | None) -> Work:
        """The initial state, also after a restart: nothing is known. Without `way` it is only fit to be
        cleaned up, because the proof is computed from the account's key, not from the object."""
        from certwright.controllers.acme import solver_factory

        means = await self._find_means(challenge)
        key = way.client.key if way is not None else None
        return Work(challenge.metadata.uid, solver_factory.task_of(challenge, key), means)

    async def _advance(self, challenge: Challenge, work: Work, way: Way) -> Result:
        status = challenge.status
        if work.asked_at is None and (
            status.processing or status.presented or not self._is_described(challenge)
        ):
            # The previous process may have done more than it has written. And what this process has not read
            # from the CA itself may be from another author.
            found = await self._ask(challenge, work, way)
            if not is_offered(challenge, found):
                return await self._refuse(challenge, f"Refused: {_NOT_OFFERED.format(found.url)}")
            if found.status in _VERDICTS:
                return await self._verdict(challenge, work, found)
        if work.presented_at is None:
            await work.means.solver.present(work.task)
            work.presented_at = challenge.status.presented_at or self._now()
        if not work.is_seen and (waiting := await self._look(challenge, work, way)) is not None:
            return waiting
        if not self.slots.take(wanted_by(challenge)):
            return Result()
        if work.accepted_at is None:
            return await self._accept(challenge, work, way)
        if work.poll_at is not None and self._now() < work.poll_at:
            return Result(wake_at=work.poll_at)
        after = self._now() - work.accepted_at
        found = await self._ask(challenge, work, way)
        waits = found.status not in _VERDICTS
        if work.polls == 1:
            self._pace_of(way).asked(after=after, is_there=not waits)
        if waits:
            return await self._poll_again(challenge, work, way, found)
        return await self._verdict(challenge, work, found)

    async def _look(self, challenge: Challenge, work: Work, way: Way) -> Result | None:
        """None once the self-check has succeeded, or is not to be continued."""
        from certwright.acme.solvers.contract import NotYet, Ready

        key = challenge.metadata.key
        patience = challenge.spec.solver.wait_instead_of_self_check
        if patience is not None or work.means.check is None:
            return await self._be_patient(challenge, work, patience or "0s")
        result = self.checks.take(key)
        if isinstance(result, Ready):
            work.is_seen = True
            return None
        if result is not None:
            return await self._look_later(challenge, work, way, result)
        if work.look_at is not None and self._now() < work.look_at:
            return Result(wake_at=work.look_at)
        check, task = work.means.check, work.task
        at_most_s = _FIRST_LOOK_TAKES_S if not work.looks else None

        async def look() -> Ready | NotYet:
            try:
                async with asyncio.timeout(at_most_s):
                    return await check.check(task)
            except TimeoutError:
                return NotYet(f"no answer within {_FIRST_LOOK_TAKES_S:g} s")
            except Exception as error:
                # A check must not raise; one that does must not be repeated immediately, for ever.
                _log.exception("the self-check of %s failed", key)
                return NotYet(f"the self-check failed: {type(error).__name__}: {error}")

        flow = flow_of(key, challenge.spec.issuer_ref, challenge.spec.dns_name)
        self.checks.start(key, look, attempt=work.looks, flow=flow)
        return Result()

    async def _be_patient(self, challenge: Challenge, work: Work, patience: str) -> Result | None:
        assert work.presented_at is not None
        until = work.presented_at + parse_duration(patience)
        if self._now() >= until:
            work.is_seen = True
            return None
        reason = (
            f"Waiting until {until:%Y-%m-%dT%H:%M:%SZ} before the CA is notified (waitInsteadOfSelfCheck)"
        )
        return await self._wait(challenge, reason, until, announced=Announced(reason))

    async def _look_later(self, challenge: Challenge, work: Work, way: Way, found: NotYet) -> Result:
        work.looks += 1
        assert work.presented_at is not None
        age = self._now() - work.presented_at
        # A name that is not seen after an hour will not be seen in the next ten seconds either.
        period = max(self._check_period, min(age / 30, announcing.LONGEST_INTERVAL))
        delay = max(doubled(_FIRST_LOOK, work.looks, cap=period), found.not_before)
        work.look_at = self._now() + delay
        asked = work.asked_at or work.presented_at
        if self._now() - asked > _ASK_THE_SERVER:
            seen = await self._ask(challenge, work, way)
            if seen.status in _VERDICTS:
                return await self._verdict(challenge, work, seen)
        reason = f"Waiting for {challenge.spec.type} challenge propagation: {found.reason}"
        announced = Announced(f"{reason}; checked again {announcing.within(max(period, found.not_before))}")
        return await self._wait(challenge, reason, work.look_at, announced=announced)

    async def _accept(self, challenge: Challenge, work: Work, way: Way) -> Result:
        from certwright.acme.protocol import authorizations
        from certwright.acme.protocol.errors import Refused
        from certwright.acme.protocol.problem import Reaction

        try:
            await way.client.run(authorizations.accept_challenge, challenge.spec.url)
        except Refused as error:
            if error.reaction in (Reaction.WAIT, Reaction.ACCOUNT):
                raise
            # Accepted before a crash, or proven by another challenge since: the authorization shows which.
            found = await self._ask(challenge, work, way)
            if found.status in _VERDICTS:
                return await self._verdict(challenge, work, found)
            told = {one.type: one.status for one in found.challenges}
            if found.status == "pending" and told.get(work.task.type) != "processing":
                raise
        work.accepted_at = self._now()
        return await self._poll_again(challenge, work, way)

    def _pace_of(self, way: Way) -> Pace:
        return self._paces[way.client.directory_url]

    async def _poll_again(
        self, challenge: Challenge, work: Work, way: Way, found: Authorization | None = None
    ) -> Result:
        retry_after = found.retry_after if found is not None else None
        why = "Waiting for the CA's verdict"
        if found is not None and found.status not in ("pending", "processing"):
            why = f'{why}: the CA calls the authorization "{quote(found.status, 40)}"'
        work.polls += 1
        now, delay = self._now(), doubled(self._pace_of(way).delay, work.polls, cap=_LONGEST_POLL)
        since = now - (work.accepted_at or now)
        delay = announcing.growing(since, at_least=delay, at_most=announcing.LONGEST_INTERVAL)
        work.poll_at = max(now + delay, retry_after or now)
        if since < _VERDICT_UNTOLD and work.poll_at - now < announcing.RECURRING:
            return Result(wake_at=work.poll_at)
        announced = Announced.of(why, work.poll_at, now, brief=announcing.RECURRING)
        return await self._wait(challenge, announced.why, work.poll_at, processing=True, announced=announced)

    async def _ask(self, challenge: Challenge, work: Work, way: Way) -> Authorization:
        from certwright.acme.protocol import authorizations

        work.asked_at = self._now()
        url = challenge.spec.authorization_url
        return await way.client.run(authorizations.fetch_authorization, url)

    async def _verdict(self, challenge: Challenge, work: Work, found: Authorization) -> Result:
        """Handle the CA's verdict. The proof is removed first, because a final state means that nothing is
        left."""
        self._sparing.answered(challenge)
        state = found.status if found.status in ("valid", "invalid", "expired") else "errored"
        if state == "valid":
            reason = VALID
        elif found.error is not None:
            reason = f"Error accepting authorization: {found.error.sentence}"
        else:
            reason = f"the authorization is {quote(found.status, 40)}"
        shown = not await self._clean_up(challenge, work)
        if state == "valid" and not shown and self._tell_order is not None and is_blank(challenge):
            work.proven_at = self._now()
            self._release(challenge.metadata.key)
            self._tell_order(challenge)
            return Result(wake_at=work.proven_at + _PROOF_UNTOLD)
        await self._write(challenge, state=state, reason=reason, processing=False, presented=shown)
        self._release(challenge.metadata.key)
        if state != "valid":
            self._recorder.event(CHALLENGES, challenge, "Warning", "Failed", reason)
        if shown:
            return Result(wake_at=self._later(challenge))
        self._work.pop(challenge.metadata.key, None)
        return Result()

    async def _say_proven(self, challenge: Challenge, proven_at: datetime) -> Result:
        """Write what the Order knows already, for readers and for the next process."""
        if self._now() < proven_at + _PROOF_UNTOLD:
            return Result(wake_at=proven_at + _PROOF_UNTOLD)
        await self._write(challenge, state="valid", reason=VALID, processing=False, presented=False)
        self._work.pop(challenge.metadata.key, None)
        return Result()

    async def _take(self, challenge: Challenge, error: AcmeError) -> Result:
        from certwright.acme.protocol.errors import Refused
        from certwright.acme.protocol.problem import Reaction

        key = challenge.metadata.key
        self._release(key)
        waits = error.reaction in (Reaction.WAIT, Reaction.ACCOUNT)
        if not waits:
            if isinstance(error, Refused):
                self._sparing.answered(challenge)
            work = self._work.get(key)
            shown = work is not None and not await self._clean_up(challenge, work)
            await self._write(
                challenge, state="errored", reason=str(error), processing=False, presented=shown
            )
            self._recorder.event(CHALLENGES, challenge, "Warning", "Failed", str(error))
            return Result(wake_at=self._later(challenge) if shown else None)
        until, why = self._later(challenge), str(error)
        named = error.retry_after if isinstance(error, Refused) else None
        announced = announcing.announced_retry(self._now(), why, until)
        if named is not None:
            until = max(min(named, self._now() + LONGEST_OBEYED), self._now() + timedelta(seconds=1))
            announced = Announced(causes.with_not_before(why, until))
        if (work := self._work.get(key)) is not None:
            work.not_before, work.is_patience = until, named is None
            work.waits_since = self._now()
        self._sparing.troubled(challenge, error, named)
        return await self._wait(challenge, why, until, announced=announced)

    async def _tidy(self, challenge: Challenge) -> Result:
        """Handle a final challenge whose proof is still presented."""
        key = challenge.metadata.key
        self._release(key)
        if not challenge.status.presented:
            self._work.pop(key, None)
            return Result()
        work = self._work.get(key)
        if work is None and await self._must_not_clean_up(challenge):
            return Result()
        if not await self._clean_up(challenge, work):
            return Result(wake_at=self._later(challenge))
        await self._write(challenge, presented=False, processing=False)
        self._work.pop(key, None)
        return Result()

    async def _end(self, challenge: Challenge) -> Result:
        """Handle a Challenge that is being deleted, while our finalizer keeps it until the proof is
        removed."""
        key, meta = challenge.metadata.key, challenge.metadata
        self._release(key)
        ours = {names.ACME_FINALIZER, names.ACME_FINALIZER_LEGACY}
        if not ours & set(meta.finalizers):
            return Result()
        work = self._work.get(key)
        is_away = (challenge.status.is_final and not challenge.status.presented) or (
            work is not None and work.proven_at is not None
        )
        if not is_away and work is None:
            is_away = await self._must_not_clean_up(challenge)
        if not is_away and not await self._clean_up(challenge, work):
            return Result(wake_at=self._later(challenge))
        left = [one for one in meta.finalizers if one not in ours]
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
        try:
            self._challenges.put(await self._client.patch(CHALLENGES, meta.name, meta.namespace, patch))
        except NotFound:
            pass
        self._work.pop(key, None)
        return Result()

    async def _must_not_clean_up(self, challenge: Challenge) -> bool:
        """Whether the Challenge may be another author's: then no solver runs for it. Reports a proof that may
        remain."""
        problem = await self._problem_of_clean_up(challenge)
        if problem and challenge.status.presented:
            told = f"No solver was run to remove a proof that may still be shown: {problem}"
            self._recorder.event(CHALLENGES, challenge, "Warning", "CleanUpSkipped", told)
        return bool(problem)

    async def _clean_up(self, challenge: Challenge, work: Work | None) -> bool:
        """Clean up the presented solution; return whether that is done. Errors are reported, and retried."""
        from certwright.acme.solvers.contract import SolverError, SolverNotAllowed

        try:
            work = work or await self._make_work(challenge, None)
            await work.means.solver.clean_up(work.task)
        except SolverNotAllowed as error:
            # Only a process with other flags can have shown anything: this one must not keep the object.
            told = f"Error cleaning up challenge: a proof shown earlier, if any, is left in place: {error}"
            self._recorder.event(CHALLENGES, challenge, "Warning", "CleanUpError", told)
            return True
        except SolverError as error:
            self._recorder.event(
                CHALLENGES, challenge, "Warning", "CleanUpError", f"Error cleaning up challenge: {error}"
            )
            return False
        return True

    async def _drop(self, key: ObjectKey, work: Work) -> None:
        """Handle a Challenge deleted without our finalizer: remove what only this process presents."""
        from certwright.acme.solvers.contract import SolverError

        self._work.pop(key, None)
        self._release(key)
        if work.proven_at is not None:
            return
        try:
            await work.means.solver.clean_up(work.task)
        except SolverError as error:
            _log.warning("%s: the proof could not be removed: %s", key, error)

    def _release(self, key: ObjectKey) -> None:
        self.slots.release(key)
        self.checks.forget(key)

    def _later(self, challenge: Challenge) -> datetime:
        key, uid = challenge.metadata.key, challenge.metadata.uid
        whose, count = self._failures.get(key, (uid, 0))
        count = count + 1 if whose == uid else 1
        self._failures[key] = uid, count
        return self._now() + doubled(timedelta(seconds=1), count, cap=announcing.LONGEST_INTERVAL)

    async def _wait(
        self,
        challenge: Challenge,
        why: str,
        until: datetime | None,
        *,
        processing: bool = False,
        announced: Announced | None = None,
    ) -> Result:
        key, now = challenge.metadata.key, self._now()
        announced = announced or Announced.of(why, until, now)
        text = challenge.status.reason
        if not text or announced.is_news(self._announced.get(key), now):
            self._announced[key], text = announced, announced.text
        work = self._work.get(challenge.metadata.key)
        shown_at = work.presented_at if work is not None else None
        at = shown_at.replace(microsecond=0) if shown_at is not None else challenge.status.presented_at
        shown = shown_at is not None or challenge.status.presented
        await self._write(
            challenge,
            reason=text,
            state="processing" if processing else "pending",
            processing=processing,
            presented=shown,
            presented_at=at,
        )
        return Result(wake_at=until)

    async def _write(self, challenge: Challenge, **changes: Any) -> None:
        changed = msgspec.structs.replace(challenge.status, **changes)
        try:
            await self._status.commit(
                CHALLENGES, challenge, msgspec.structs.replace(challenge, status=changed)
            )
        except NotFound:
            return
