"""What every store must do: the sentences of `certwright.kube.store.contract`, as tests.

To check a store, subclass `StoreContract` in a test module and give it a fixture `open_store`, which returns
an `OpenStore`; then give `model_machine` the same to compare the store with a dictionary.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from certwright.kube.store.contract import Changed, Exists, Key, Missing, Row, Store, StoreError, Watch
from conformance.check_store_listing import ListingContract
from conformance.check_store_watching import WatchingContract
from conformance.check_store_writing import ConcurrencyContract, WritingContract
from conformance.store_words import OpenStore, row_saying, saying


class StoreContract(WritingContract, ConcurrencyContract, ListingContract, WatchingContract):
    """Everything; subclass it and give it the fixture `open_store`."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[Store]:
        """A new store, closed after the test."""
        store = await open_store()
        yield store
        await store.close()


_KEYS = st.builds(
    Key, st.sampled_from(["things", "other"]), st.sampled_from(["", "x"]), st.sampled_from("abcd")
)
_EXPECT = st.sampled_from(["anything", "nothing", "this", "stale"])


def model_machine(open_store: OpenStore, *, in_order: bool = True) -> type[RuleBasedStateMachine]:
    """A state machine that does the same to a store and to dictionaries, and compares what they say.

    `in_order`: writes that are under way at the same time get their revisions in the order of the calls,
    those of different keys too.
    """

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.runner = asyncio.Runner()
            self.store: Store = self.runner.run(open_store())
            self.rows: dict[Key, Row] = {}
            self.start = self.store.revision
            self.past: list[dict[Key, Row]] = [{}]
            self.watches: dict[str, Watch] = {
                bucket: self.store.watch(bucket, after=self.start) for bucket in ("things", "other")
            }
            self.heard: dict[Key, Row] = {}

        def expected(self, key: Key, expect: str) -> int | None:
            current = self.rows[key].revision if key in self.rows else self.start or 1
            return {"anything": None, "nothing": 0, "this": current, "stale": current + 1}[expect]

        def predict(self, key: Key, expect: int | None, *, delete: bool) -> type[StoreError] | None:
            if (current := self.rows.get(key)) is None:
                return Missing if delete or expect else None
            if expect == 0 and not delete:
                return Exists
            return None if expect in (None, current.revision) else Changed

        def predict_and_apply(self, key: Key, text: str, expect: int | None, *, delete: bool) -> Any:
            if error := self.predict(key, expect, delete=delete):
                return error
            row = row_saying(key, self.start + len(self.past), text)
            self.rows.pop(key, None)
            if not delete:
                self.rows[key] = row
            self.past.append(dict(self.rows))
            return row

        @rule(
            calls=st.lists(
                st.tuples(_KEYS, st.text("xyz", max_size=3), _EXPECT, st.booleans()), min_size=1, max_size=6
            )
        )
        def write_at_the_same_time(self, calls: list[tuple[Key, str, str, bool]]) -> None:
            async def run() -> list[object]:
                if in_order:
                    return await asyncio.gather(*works, return_exceptions=True)
                return [(await asyncio.gather(work, return_exceptions=True))[0] for work in works]

            works, expected = [], []
            for key, text, how, delete in calls:
                expect = self.expected(key, how)
                expected.append(self.predict_and_apply(key, text, expect, delete=delete))
                write = self.store.delete if delete else self.store.put
                works.append(write(key, saying(text), expect=expect))
            results = self.runner.run(run())
            assert [r if isinstance(r, Row) else type(r) for r in results] == expected

        @rule(
            bucket=st.sampled_from(["things", "other"]),
            namespace=st.sampled_from([None, "", "x"]),
            back=st.integers(0, 10),
            limit=st.integers(1, 5),
        )
        def list_as_it_was(self, bucket: str, namespace: str | None, back: int, limit: int) -> None:
            revision = max(self.start, self.store.revision - back)
            expected = sorted(
                row
                for key, row in self.past[revision - self.start].items()
                if key.bucket == bucket and namespace in (None, key.namespace)
            )
            rows: list[Row] = []
            while True:
                after = (rows[-1].key.namespace, rows[-1].key.name) if rows else None
                page = self.runner.run(
                    self.store.list(bucket, namespace, limit=limit, after=after, revision=revision)
                )
                rows += page.rows
                if not page.more:
                    break
            assert rows == expected

        @rule(bucket=st.sampled_from(["things", "other"]))
        @precondition(lambda self: self.store.revision > self.start)
        def hear_what_happened(self, bucket: str) -> None:
            watch = self.watches[bucket]
            while watch.position < self.store.revision:
                for event in self.runner.run(watch.next(timeout_s=0.5)) or ():
                    assert self.heard.get(event.row.key) == event.previous
                    self.heard.pop(event.row.key, None)
                    if not event.deleted:
                        self.heard[event.row.key] = event.row
            assert [row for key, row in sorted(self.heard.items()) if key.bucket == bucket] == [
                row for key, row in sorted(self.rows.items()) if key.bucket == bucket
            ]

        @invariant()
        def rows_are_as_in_the_model(self) -> None:
            assert self.store.revision == self.start + len(self.past) - 1
            for key, row in self.rows.items():
                assert self.runner.run(self.store.get(key)) == row
                assert self.store.recent(key) in (row, None)
            counts = [self.runner.run(self.store.count(bucket)) for bucket in ("things", "other")]
            assert sum(counts) == len(self.rows)

        def teardown(self) -> None:
            self.runner.run(self.store.close())
            self.runner.close()

    return Machine
