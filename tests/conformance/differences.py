"""Where our server answers otherwise than the reference, on purpose: all of it, with the reason.

A difference levels both answers before they are compared, and only those to requests that it is about.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Level = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """`asked`: a pattern for the beginning of the request line. `level` makes equal what may differ; it gets
    a copy of the answer."""

    reason: str
    asked: str
    level: Level


def without(*names: str) -> Level:
    """Takes members of these names out, wherever they are."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(item) for name, item in value.items() if name not in names}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip


DIFFERENCES: tuple[Difference, ...] = (
    Difference("a gap, not meant: managed fields are still being built", "", without("managedFields")),
)

GAPS: dict[str, int] = {
    "definitions_are_judged": 8,
    "merge_patches": 39,
    "json_patches": 27,
    "patches_of_other_types": 6,
    "objects_are_got": 5,
    "paths_that_name_nothing": 11,
    "methods_that_nobody_has": 9,
    "lists_are_selected_by_label": 11,
    "lists_are_selected_by_field": 12,
    "lists_come_in_pieces": 14,
    "lists_are_of_a_revision": 1,
    "answers_take_other_forms": 28,
    "all_namespaces_are_listed": 5,
    "what_is_there_can_be_discovered": 3,
    "every_change_is_an_event": 2,
    "a_label_selector_makes_events_of_its_own": 2,
    "a_field_selector_makes_events_of_its_own": 1,
    "events_carry_metadata_only": 2,
    "events_carry_tables": 1,
    "a_watch_begins_with_what_is_there": 2,
    "watches_that_cannot_begin": 3,
    "a_watch_spans_namespaces": 1,
    "versions_are_watched_side_by_side": 3,
    "specs_are_judged_by_their_schema": 23,
    "metadata_is_judged": 53,
    "bodies_are_read": 15,
    "types_must_fit_the_path": 23,
    "an_object_is_created_once": 5,
    "an_object_is_replaced": 13,
    "status_is_written_apart": 8,
    "the_scale_is_read_and_written": 4,
    "objects_are_deleted": 16,
    "finalizers_hold_an_object": 9,
    "collections_are_deleted": 6,
    "rules_in_cel_are_kept": 13,
    "versions_are_served_side_by_side": 9,
}
"""Stories in which answers still differ without being meant to, and how many: the numbers may only fall."""

used: Counter[str] = Counter()
"""How many answers a difference has made equal, by its reason."""
compared: Counter[str] = Counter()
"""How many answers were compared, by the form of our server."""
gaps: Counter[str] = Counter()
"""How many answers of a story differ without being meant to."""


def level(asked: str, theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Both answers without the differences that are meant."""
    for difference in DIFFERENCES:
        if theirs == ours:
            break
        if re.match(difference.asked, asked):
            one, other = difference.level(copy.deepcopy(theirs)), difference.level(copy.deepcopy(ours))
            if (one, other) != (theirs, ours):
                used[difference.reason] += 1
                theirs, ours = one, other
    return theirs, ours
