"""CEL's `find` and `findAll`: regular expressions in linear time (RE2's syntax)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from certwright.kube.apiserver.cel.library import cel
from certwright.kube.util.memo import remembering

_CONFIG = "name: regex\nextensions:\n- name: regex\n  version: latest\n- name: optional\n  version: latest\n"


@cache
def _env() -> Any:
    names = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_CONFIG), variables=names)


@cache
def _find() -> Any:
    return _env().compile("regex.extract(text, pattern).orValue('')")


@cache
def _find_all() -> Any:
    return _env().compile("regex.extractAll(text, pattern)")


_GROUP = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\((?!\?)|\(\?P?<\w+>", re.DOTALL
)


@remembering(most=256, longest=1024)
def _without_groups(pattern: str) -> str:
    """The library returns the first group if there is one; Kubernetes returns the whole match."""
    return _GROUP.sub(lambda match: "(?:" if match[0].startswith("(") else match[0], pattern)


def _run(expression: Any, text: str, pattern: str) -> object:
    result = expression.eval(data={"text": text, "pattern": _without_groups(pattern)})
    if result.type() == cel.Type.ERROR:
        raise ValueError(f"Illegal regex: {result.value()}")
    return result.value()


def find(text: str, pattern: str) -> str:
    """The first match, or an empty text. Raises `ValueError` for an invalid pattern."""
    return str(_run(_find(), text, pattern))


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The matches from left to right, at most `limit` where that is not negative."""
    matches = _run(_find_all(), text, pattern)
    assert isinstance(matches, list), "regex.extractAll gives a list"
    texts = [str(getattr(item, "value", lambda item=item: item)()) for item in matches]
    return texts if limit < 0 else texts[:limit]
