"""Schema and parser of a kubeconfig file.

`read_block_style` reads the YAML that programs write as kubeconfigs: mappings and lists in block style, with
plain strings. PyYAML reads everything else: loading it costs every command a tenth of its processor time.

Source: Kubernetes client configuration, `kubeconfig (v1)`; YAML 1.2.2, §8.2 "Block Collection Styles"; YAML
1.1 types, which PyYAML and kubectl resolve.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.kube.util.decoders import convert
from certwright.kube.util.encoding import one_line

MAX_BYTES: Final = 4 * 2**20
"""Of a file: thousands of clusters with their certificates."""


class KubeconfigError(Exception):
    """The file cannot be used; the text is one sentence that names file, context and field."""


class Extension(msgspec.Struct):
    """Data that a program stores in the file."""

    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab"):
    """A server, as the file describes it."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[Extension] | None = None


class Variable(msgspec.Struct):
    """An environment variable of a plugin."""

    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    """An exec credential plugin."""

    command: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(msgspec.Struct, rename="kebab"):
    """A user, and the credentials."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    exec: Exec | None = None
    auth_provider: Any = None
    username: str = ""
    as_: str = msgspec.field(default="", name="as")


class Context(msgspec.Struct):
    """A cluster and a user that belong together."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct):
    """An item of `clusters`."""

    name: str
    cluster: Cluster


class NamedUser(msgspec.Struct):
    """An item of `users`."""

    name: str
    user: User


class NamedContext(msgspec.Struct):
    """An item of `contexts`."""

    name: str
    context: Context


class Config(msgspec.Struct, rename="kebab"):
    """The whole file."""

    kind: str = ""
    current_context: str = ""
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


class Place(msgspec.Struct, frozen=True):
    """The location in a file, for messages and for relative paths."""

    file: Path
    what: str

    def error(self, sentence: str) -> KubeconfigError:
        """The error to raise: the place, then the sentence."""
        return KubeconfigError(f"{self.file}: {self.what}: {sentence}")


def read(file: Path) -> Config:
    """Parse the file. Raises `KubeconfigError`."""
    try:
        with file.open("rb") as source:
            text = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise KubeconfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(text) > MAX_BYTES:
        raise KubeconfigError(f"{file}: not a kubeconfig: it is larger than {MAX_BYTES // 2**20} MiB")
    content = read_block_style(text.decode("latin-1"))
    if content is None:
        content = _yaml(file, text)
    if not isinstance(content or {}, dict):
        raise KubeconfigError(f"{file}: not a kubeconfig")
    try:
        config = convert(content or {}, Config)
    except msgspec.ValidationError as error:
        sentence = str(error).replace(" - at `$.", ": at `").replace("`", "")
        raise KubeconfigError(f"{file}: not a kubeconfig: {sentence}") from None
    if config.kind not in ("", "Config"):
        raise KubeconfigError(f'{file}: not a kubeconfig: its kind is "{config.kind}", not "Config"')
    return config


def _yaml(file: Path, text: bytes) -> Any:
    # Not PyYAML's loader, which deep nesting and repeated aliases overwhelm.
    from certwright.kube.api.yaml_codec import YamlError, load  # loads PyYAML: 10 ms of each command

    try:
        return load(text.decode(), [])
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{file}: not YAML: {error.reason}") from None
    except YamlError as error:
        where = f" at line {error.line}, column {error.column}" if error.line else ""
        raise KubeconfigError(f"{file}: not YAML{where}: {one_line(error.message)}") from None


# A plain scalar on one line that is a string in YAML 1.1: with a letter that no number, date, infinity or
# `on`, `off` and `no` has, and none of the words below.
_LINE = re.compile(
    r"( *)((?:- )*)([A-Za-z][A-Za-z-]*):"
    r"(?: (?=\S*[G-MP-SU-WYg-mp-su-wy])([A-Za-z0-9/_](?:[A-Za-z0-9+/=._:@-]*[A-Za-z0-9+/=._@-])?))?"
)
_NO_STRINGS = frozenset(("false", "n", "no", "null", "off", "on", "true", "y", "yes"))
_Line = tuple[int, bool, str, str | None]


class _Unusual(Exception):
    """The text is not in this style."""


def read_block_style(text: str) -> dict[str, Any] | None:
    """The mapping in `text`, as PyYAML reads it; None for what is not in this style."""
    try:
        lines = [_line(line) for line in text.removesuffix("\n").split("\n")]
        content, end = _mapping(lines, 0, 0)
    except _Unusual:
        return None
    return content if end == len(lines) else None


def _line(text: str) -> _Line:
    """Indentation of the key, whether a list item begins, key and value."""
    match = _LINE.fullmatch(text)
    if match is None or len(match[2]) > 2 or (match[4] or "").lower() in _NO_STRINGS:
        raise _Unusual
    return len(match[1]) + len(match[2]), bool(match[2]), match[3], match[4]


def _mapping(lines: list[_Line], start: int, indent: int) -> tuple[dict[str, Any], int]:
    """The mapping whose first key is on line `start`, and the number of the line after it."""
    content: dict[str, Any] = {}
    i = start
    while i < len(lines) and lines[i][0] == indent and (i == start or not lines[i][1]):
        _, _, key, value = lines[i]
        if key in content or key.lower() in _NO_STRINGS:
            raise _Unusual
        i += 1
        content[key] = value
        if value is None:
            content[key], i = _nested(lines, i, indent)
    return content, i


def _nested(lines: list[_Line], start: int, indent: int) -> tuple[Any, int]:
    """The list or mapping below a key with that indentation."""
    if start == len(lines):
        raise _Unusual
    inner, is_item, _, _ = lines[start]
    # A list may begin in the column of its key: its keys are then two columns further.
    if inner <= indent:
        raise _Unusual
    if not is_item:
        return _mapping(lines, start, inner)
    items, i = [], start
    while i < len(lines) and lines[i][0] == inner and lines[i][1]:
        item, i = _mapping(lines, i, inner)
        items.append(item)
    return items, i
