"""YAML as kubectl prints it: block style, keys sorted, strings quoted only where they must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from yaml.events import (
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from certwright.kube.api.yaml_scalars import is_plain_text

_PLAIN_TAGS: Final = (True, False)
_QUOTED_TAGS: Final = (False, True)


def write_yaml(content: Any) -> str:
    """A JSON value as one YAML document, without `---`.

    Reading it again, with our reader or with kubectl, gives the same value. Raises `TypeError` for what JSON
    does not have.
    """
    text: str = yaml.emit(_stream(content), Dumper=yaml.CSafeDumper, allow_unicode=True, width=80)
    return text.removesuffix("...\n")


def _stream(content: Any) -> Iterator[Event]:
    yield StreamStartEvent()
    yield DocumentStartEvent(explicit=False)
    yield from _node(content)
    yield DocumentEndEvent(explicit=False)
    yield StreamEndEvent()


def _node(value: Any) -> Iterator[Event]:
    if isinstance(value, Mapping):
        yield MappingStartEvent(None, None, True, flow_style=not value)
        for key in sorted(value):
            yield _text(key)
            yield from _node(value[key])
        yield MappingEndEvent()
    elif isinstance(value, (list, tuple)):
        yield SequenceStartEvent(None, None, True, flow_style=not value)
        for item in value:
            yield from _node(item)
        yield SequenceEndEvent()
    else:
        yield _scalar(value)


def _scalar(value: Any) -> Event:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return ScalarEvent(None, None, _PLAIN_TAGS, "null")
    if isinstance(value, bool):
        return ScalarEvent(None, None, _PLAIN_TAGS, "true" if value else "false")
    if isinstance(value, (int, float)):
        return ScalarEvent(None, None, _PLAIN_TAGS, repr(value))
    raise TypeError(f"{type(value).__name__} has no place in YAML; give it JSON values only")


def _text(value: str) -> Event:
    if "\n" in value:
        return ScalarEvent(None, None, _QUOTED_TAGS, value, style="|")
    if value and is_plain_text(value):
        return ScalarEvent(None, None, (True, True), value)
    return ScalarEvent(None, None, _QUOTED_TAGS, value, style='"')
