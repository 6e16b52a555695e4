"""Schema and parser of a kubeconfig file.

Source: Kubernetes client configuration, `kubeconfig (v1)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.kube.client.block_style import read_block_style
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
    # See `block_style`. Not PyYAML's loader, which deep nesting and repeated aliases overwhelm.
    from certwright.kube.api.yaml_reader import YamlError, load  # loads PyYAML: 10 ms of each command

    try:
        return load(text.decode(), [])
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{file}: not YAML: {error.reason}") from None
    except YamlError as error:
        where = f" at line {error.line}, column {error.column}" if error.line else ""
        raise KubeconfigError(f"{file}: not YAML{where}: {one_line(error.message)}") from None
