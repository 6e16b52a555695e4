"""Regular expressions of others, matched in linear time."""

from __future__ import annotations

from collections.abc import Callable


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of `pattern`, found in linear time whatever the pattern.

    Raises `ValueError` for an invalid pattern, or one that needs backtracking.
    """
    import jsonschema_rs  # 8 MB and 24 ms, needed only where a schema has a pattern

    try:
        validator = jsonschema_rs.validator_for(
            {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"{pattern!r} is not a regular expression") from error
    return validator.is_valid
