"""What a refusal says."""

from __future__ import annotations

from certwright.kube.api.errors import MAX_CAUSES, invalid, invalid_object


def test_as_many_mistakes_are_told_as_fit_into_a_megabyte() -> None:
    few = [invalid(f"spec.f{number}", "x" * 300_000, "no") for number in range(10)]
    many = [invalid(f"spec.f{number}", "x", "no") for number in range(MAX_CAUSES + 5)]
    assert len(invalid_object("", "Pod", "a", few).causes) == 3
    assert invalid_object("", "Pod", "a", few).message.endswith("and 7 more]")
    assert len(invalid_object("", "Pod", "a", many).causes) == MAX_CAUSES
    assert invalid_object("", "Pod", "a", many).message.endswith("and 5 more]")


def test_one_mistake_is_told_however_large_it_is() -> None:
    assert len(invalid_object("", "Pod", "a", [invalid("spec", "x" * 3_000_000, "no")] * 2).causes) == 1
