"""Sequences of requests that nobody thought of, sent to the reference and to ours in lock step.

Three clients write to a few objects of four kinds, one of them in two versions, with what they last saw of
them or with nothing; every answer is compared at once, and at the end what the watches saw, from the
beginning and from the middle. `make soak` runs it for long.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from conformance.generated import (
    CLIENTS,
    FORMS,
    LABELS,
    MANAGERS,
    METADATA,
    NAMES,
    OPERATIONS,
    PIECES,
    STATUSES,
    WHERE,
    WITH_STATUS,
    WRITES,
    Pair,
)
from conformance.kinds import Json
from support.oracle import Oracle

SOAK = int(os.environ.get("CERTWRIGHT_SOAK", "0"))
"""How many sequences; 0: as many as a test run has time for."""

_SELECTORS = ["labelSelector=x=1", "labelSelector=x", "fieldSelector=metadata.name=a", "dryRun=All"]


class Requests(Pair):
    """What the clients may do."""

    pieces: list[str] | None = None

    # --- reads --------------------------------------------------------------------------------------------

    @rule(where=WHERE, name=NAMES, form=FORMS)
    def get(self, where: str, name: str, form: str) -> None:
        target = self.target(where, name)
        answers = self.both(*(c.get(target, accept=form) for c in self.callers))
        if form == "application/json":
            self.remember(where, name, answers)

    @rule(
        where=st.sampled_from(["one", "two", "owned", "twin", "twin beta"]),
        query=st.sampled_from(["", "labelSelector=x=1", "limit=1", "fieldSelector=metadata.name=a"]),
        form=FORMS,
    )
    def listing(self, where: str, query: str, form: str) -> None:
        form = form.replace("PartialObjectMetadata;", "PartialObjectMetadataList;")
        self.both(*(c.get(f"{self.path(where)}?{query}", accept=form) for c in self.callers))

    @rule()
    def begin_to_list_in_pieces(self) -> None:
        self._take_piece("limit=1", ["", ""])

    @precondition(lambda self: self.pieces)
    @rule()
    def list_the_next_piece(self) -> None:
        """Of the state in which the first was taken, whatever has been written since."""
        self._take_piece("limit=1&continue=", self.pieces or [])

    def _take_piece(self, query: str, tokens: list[str]) -> None:
        target = f"{self.path('one')}?{query}"
        pairs = zip(self.callers, tokens, strict=True)
        answers = self.both(*(c.get(target + token) for c, token in pairs))
        continue_tokens = [answer.json.get("metadata", {}).get("continue", "") for answer in answers]
        self.pieces = continue_tokens if all(continue_tokens) else None

    @rule(where=st.sampled_from(["one", "owned"]))
    def remember_the_revision(self, where: str) -> None:
        """At the end, a watch begins here."""
        answers = self.both(*(c.get(self.path(where)) for c in self.callers))
        if len(self.points) < 3:
            self.points.append((where, [answer.json["metadata"]["resourceVersion"] for answer in answers]))

    # --- writes -------------------------------------------------------------------------------------------

    @rule(write=WRITES, name=NAMES, client=CLIENTS, meta=METADATA, query=st.sampled_from(["", "dryRun=All"]))
    def create(self, write: tuple[str, Json], name: str, client: str, meta: Json, query: str) -> None:
        where, spec = write
        body = self.new(where, name, spec, meta)
        answers = self.both(
            *(c.post(f"{self.path(where)}?{query}", body, agent=client) for c in self.callers)
        )
        if not query:
            self.remember(where, name, answers)

    @rule(write=WRITES, name=NAMES, strictness=st.sampled_from(["Strict", "Warn", "Ignore"]))
    def create_strictly(self, write: tuple[str, Json], name: str, strictness: str) -> None:
        where, spec = write
        target = f"{self.path(where)}?fieldValidation={strictness}"
        self.both(*(c.post(target, self.new(where, name, spec)) for c in self.callers))

    @rule(client=CLIENTS, labels=LABELS)
    def create_under_a_generated_name(self, client: str, labels: Json) -> None:
        body = self.new("many", "", {"size": 1}, {"generateName": "made-", "labels": labels})
        del body["metadata"]["name"]
        answers = self.both(*(c.post(self.path("many"), body, agent=client) for c in self.callers))
        names = [answer.json["metadata"]["name"] for answer in answers]
        pairs = zip(self.callers, names, strict=True)
        self.both(*(c.get(f"{self.path('many')}/{name}") for c, name in pairs))

    @rule(
        write=WRITES,
        name=NAMES,
        client=CLIENTS,
        labels=LABELS | st.none(),
        dry=st.booleans(),
        own=st.booleans(),
    )
    def replace(
        self, write: tuple[str, Json], name: str, client: str, labels: Json | None, dry: bool, own: bool
    ) -> None:
        """PUT over what was last seen, current or not; over nothing when nothing was."""
        where, spec = write
        fresh = self.new(where, name, spec, {"resourceVersion": "1"})
        bodies = []
        for last in self.last(where, name) or [fresh, fresh]:
            meta = {**last["metadata"], **({"labels": labels} if labels else {})}
            if not own:
                meta.pop("managedFields", None)
            bodies.append({**last, "metadata": meta, "spec": spec})
        target = f"{self.target(where, name)}{'?dryRun=All' if dry else ''}"
        answers = self.each("PUT", target, bodies, agent=client)
        if not dry:
            self.remember(where, name, answers)

    @rule(
        where=WHERE,
        name=NAMES,
        piece=PIECES,
        client=CLIENTS,
        subresource=st.sampled_from(["", "", "", "/status"]),
        query=st.sampled_from(["", "", "", "dryRun=All", "fieldValidation=Strict", "fieldManager=other"]),
    )
    def merge(self, where: str, name: str, piece: Json, client: str, subresource: str, query: str) -> None:
        target = f"{self.target(where, name)}{subresource}?{query}"
        self.both(*(c.patch(target, piece, agent=client) for c in self.callers))

    @rule(where=WHERE, name=NAMES, operations=OPERATIONS, client=CLIENTS)
    def operate(self, where: str, name: str, operations: list[Json], client: str) -> None:
        target = self.target(where, name)
        self.both(*(c.patch(target, operations, "json", agent=client) for c in self.callers))

    @rule(where=WITH_STATUS, name=NAMES, status=STATUSES, client=CLIENTS)
    def report(self, where: str, name: str, status: Json, client: str) -> None:
        """PUT of the status."""
        target = f"{self.target(where, name)}/status"
        answers = self.both(*(c.get(target) for c in self.callers))
        if answers[0].status == 200:
            self.each("PUT", target, [{**answer.json, "status": status} for answer in answers], agent=client)

    @rule(where=WITH_STATUS, name=NAMES, number=st.integers(0, 2), client=CLIENTS, put=st.booleans())
    def scale(self, where: str, name: str, number: int, client: str, put: bool) -> None:
        target = f"{self.target(where, name)}/scale"
        answers = self.both(*(c.get(target) for c in self.callers))
        if put and answers[0].status == 200:
            bodies: list[Any] = [{**answer.json, "spec": {"replicas": number}} for answer in answers]
            self.each("PUT", target, bodies, agent=client)
        else:
            patch = {"spec": {"replicas": number}}
            self.both(*(c.patch(target, patch, agent=client) for c in self.callers))

    # --- server-side apply --------------------------------------------------------------------------------

    @rule(
        write=WRITES,
        name=NAMES,
        meta=METADATA,
        manager=MANAGERS,
        query=st.sampled_from(
            ["", "", "&force=true", "&force=true", "&dryRun=All", "&fieldValidation=Strict"]
        ),
        pinned=st.sampled_from(["", "", "", "resourceVersion", "uid"]),
    )
    def apply(
        self, write: tuple[str, Json], name: str, meta: Json, manager: str, query: str, pinned: str
    ) -> None:
        where, spec = write
        # Where an unknown field stands, the reference stops to look for what else is wrong: by chance.
        spec = {key: value for key, value in spec.items() if key != "unknown"}
        # Empty members of applied metadata stay in its etcd, unseen, and the next write of nothing writes.
        meta = {key: value for key, value in meta.items() if value}
        bodies = [self.new(where, name, spec, meta), self.new(where, name, spec, meta)]
        if pinned and (last := self.last(where, name)):
            for body, seen in zip(bodies, last, strict=True):
                body["metadata"] = {**body["metadata"], pinned: seen["metadata"][pinned]}
        target = f"{self.target(where, name)}?fieldManager={manager}{query}"
        answers = self.each("PATCH", target, bodies, content_type="application/apply-patch+yaml")
        if "dryRun" not in query:
            self.remember(where, name, answers)

    @rule(where=WITH_STATUS, name=NAMES, status=STATUSES, manager=MANAGERS, force=st.booleans())
    def apply_the_status(self, where: str, name: str, status: Json, manager: str, force: bool) -> None:
        body = self.new(where, name, {})
        body.pop("spec")
        body["status"] = status
        target = f"{self.target(where, name)}/status?fieldManager={manager}&force={str(force).lower()}"
        self.both(*(c.patch(target, body, "apply") for c in self.callers))

    # --- deletion -----------------------------------------------------------------------------------------

    @rule(
        where=WHERE,
        name=NAMES,
        policy=st.sampled_from(["Background", None]),
        pinned=st.sampled_from(["", "", "resourceVersion", "uid"]),
        dry=st.booleans(),
    )
    def delete(self, where: str, name: str, policy: str | None, pinned: str, dry: bool) -> None:
        options: list[Json] = [{"propagationPolicy": policy} if policy else {} for _ in self.seen]
        if pinned and (last := self.last(where, name)):
            for option, seen in zip(options, last, strict=True):
                option["preconditions"] = {pinned: seen["metadata"][pinned]}
        target = f"{self.target(where, name)}{'?dryRun=All' if dry else ''}"
        self.each("DELETE", target, [option or None for option in options])

    @rule(where=st.sampled_from(["one", "two", "owned", "twin"]), query=st.sampled_from(_SELECTORS))
    def delete_all(self, where: str, query: str) -> None:
        self.both(*(c.delete(f"{self.path(where)}?{query}") for c in self.callers))


@pytest.mark.parametrize("form", ["memory", "sqlite"])
def test_sequences_that_nobody_thought_of(oracle: Oracle, form: str) -> None:
    Requests.loop, Requests.oracle, Requests.form = asyncio.new_event_loop(), oracle, form
    try:
        run_state_machine_as_test(
            Requests,
            settings=settings(
                max_examples=SOAK or 12,
                stateful_step_count=50 if SOAK else 30,
                deadline=None,
                database=None,
                derandomize=not SOAK,
                suppress_health_check=list(HealthCheck),
                print_blob=bool(SOAK),
                # Finding the shortest sequence takes minutes, which only a soak has.
                phases=list(Phase) if SOAK else [Phase.generate],
            ),
        )
    finally:
        Requests.loop.close()
