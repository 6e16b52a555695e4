"""Pages that are cut out of many rows."""

from __future__ import annotations

from collections.abc import Iterator

from certwright.kube.store.contract import Key, Row
from certwright.kube.store.pages import Query, cut


def rows(count: int, read: list[str]) -> Iterator[Row]:
    """So many rows; the names of those that were read are noted."""
    for number in range(count):
        read.append(name := f"{number:06}")
        yield Row(Key("things", "", name), number + 1, b"", b"")


def test_a_page_of_few_among_many_ends_before_all_were_looked_at() -> None:
    read: list[str] = []
    query = Query("things", limit=5, keep=lambda row: False)
    page = cut(rows(100_000, read), query, {})
    assert (page.rows, page.more, page.last) == ([], True, ("", read[-2]))
    assert len(read) < 5_000


def test_a_full_page_looks_at_one_row_more() -> None:
    read: list[str] = []
    page = cut(rows(100, read), Query("things", limit=5, keep=lambda row: row.revision % 2 == 0), {})
    assert [row.revision for row in page.rows] == [2, 4, 6, 8, 10]
    assert (page.more, page.last, len(read)) == (True, ("", "000009"), 11)


def test_what_was_there_before_is_shown_as_far_as_was_looked() -> None:
    then = {
        ("", name): Row(Key("things", "", name), 1, b"", b"then")
        for name in ("000001", "000003", "000004", "999999")
    }
    query = Query("things", limit=3, keep=lambda row: row.key.name != "000003")
    page = cut(rows(100, []), query, then)
    assert [row.key.name for row in page.rows] == ["000000", "000001", "000002"]
    assert page.more
    rest = cut(rows(3, []), query, then)
    assert [row.key.name for row in rest.rows] == ["000000", "000001", "000002"]
    assert rest.more
