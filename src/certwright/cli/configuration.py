"""The configuration file of long-running commands: each flag has its key, each key its flag.

A file is a mapping with `apiVersion: certwright.io/v1alpha1` and `kind: Configuration`, as the component
configurations of Kubernetes, and one key for each flag in camelCase: `--tls-san` is `tlsSan`. The files
`conf.d/*.yaml` beside it are merged in the order of their names: lists are appended, any other value may be
set once. Flags of the command line win over files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from certwright.cli import lazy
from certwright.cli.errors import Failed, print_as
from certwright.cli.flags import Grouped, Option

API_VERSION: Final = "certwright.io/v1alpha1"
KIND: Final = "Configuration"
DEFAULT_FILE: Final = Path("/etc/certwright/certwright.yaml")
COMMANDS: Final = ("serve", "controllers")
"""The commands that have a configuration."""
_TYPE_KEYS: Final = {"apiVersion": API_VERSION, "kind": KIND}
_SHELL_KEYS: Final = frozenset(("hook", "onChange"))
"""Keys whose values a shell runs: `${NAME}` in them is the shell's."""
_MAX_BYTES: Final = 1 << 20
_VARIABLE: Final = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_FILE: Final = re.compile(r"(^|=)file:(/.+)$", re.DOTALL)
_ARGUMENTS: Final = "certwright.arguments"
_FILES: Final = "certwright.files"
_FLAG: Final = re.compile(r"--[a-z0-9][a-z0-9-]*[a-z0-9]")
_ONLY_READ: Final = object()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file; `line` counts from 1, 0: the file as a whole."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a file, and its place. `shown`: the value as written, without credentials."""

    key: str
    value: Any
    shown: Any
    path: Path
    line: int

    def hide(self, text: str) -> str:
        """The text as written, without the contents of variables and files, which may be credentials."""
        values, shown = (part if isinstance(part, list) else [part] for part in (self.value, self.shown))
        for value, instead in zip(values, shown, strict=True):
            if value and value != instead:
                text = text.replace(value, instead)
        return text


class Key:
    """A key of the file, which sets the flag `option`."""

    def __init__(self, option: click.Option) -> None:
        self.option = option
        self.flag = max(option.opts, key=len)
        self.name = camel_case(self.flag)
        self.is_list = option.multiple
        self.reloads = isinstance(option, Option) and option.flag.reloads
        self.is_truth = isinstance(option.type, click.types.BoolParamType)

    @cached_property
    def _joins(self) -> bool:
        # Flags whose one value is a list with commas: the file may have a list for them.
        return self.is_list or any(mark in (self.option.metavar or "") for mark in ("LIST", ",…"))

    @cached_property
    def _is_map(self) -> bool:
        return self.is_list or "=" in (self.option.metavar or "")

    def read(self, value: Any) -> Any:
        """The value for click: a list of texts, a text, or a bool. Raises `ValueError`."""
        if self.is_truth:
            if not isinstance(value, bool):
                raise ValueError(f"{value!r} is neither true nor false")
            return value
        if isinstance(value, Mapping) and self._is_map:
            value = [f"{name}={_truth(part) or _text(part)}" for name, part in value.items()]
        if isinstance(value, list):
            if not self._joins:
                raise ValueError("expects one value, not a list")
            texts = [_text(part) for part in value]
            return texts if self.is_list else ",".join(texts)
        return [_text(value)] if self.is_list else _text(value)

    def check(self, value: Any, context: click.Context) -> None:
        """Raise `click.BadParameter` for a value that the flag refuses."""
        converted = self.option.type_cast_value(context, value)
        if self.option.callback is not None:
            self.option.callback(context, self.option, converted)

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the key's value; `x-reloads`: whether SIGHUP applies another one."""
        text = " ".join((self.option.help or "").split("  [default: ")[0].split())
        described = {"description": text, "x-reloads": self.reloads}
        if self.is_truth:
            return {**described, "type": "boolean"}
        one = {"type": ["string", "number"]}
        forms: list[dict[str, Any]] = [one]
        if self._joins:
            forms.insert(0, {"type": "array", "items": one})
        if self._is_map:
            values = {"type": ["string", "number", "boolean"]}
            forms.insert(1, {"type": "object", "additionalProperties": values})
        return {**described, **one} if len(forms) == 1 else {**described, "anyOf": forms}


def camel_case(flag: str) -> str:
    """`--tls-san` as `tlsSan`."""
    first, *others = re.split("[-_]", flag.lstrip("-"))
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, (dict, list)):
        raise ValueError(f"expects text, not {_name_of(value)}")
    return str(value)


def _truth(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else ""


def _name_of(value: Any) -> str:
    if value is None:
        return "null; leave the key out for the default"
    if isinstance(value, bool):
        return f"{str(value).lower()}; quote it if that is the text"
    return "a mapping" if isinstance(value, dict) else "a list"


def keys_of(command: click.Command) -> dict[str, Key]:
    """The keys of the command's configuration, by name."""
    options = (
        option
        for option in command.params
        if isinstance(option, click.Option) and option.expose_value and not option.hidden
    )
    return {key.name: key for key in map(Key, options)}


class Files:
    """The configuration of one command: a file, and `conf.d` beside it. `problems`: their errors; the other
    members contain the valid part."""

    def __init__(self, path: Path, context: click.Context) -> None:
        self.keys = keys_of(context.command)
        self.problems: list[Problem] = []
        self.settings: list[Setting] = []
        self._context = context
        for file in self._paths(path):
            self._read(file)
        first: dict[str, Setting] = {}
        for setting in self.settings:
            before = first.setdefault(setting.key, setting)
            if before is setting or self.keys[setting.key].is_list:
                continue
            where = f"{before.path}, line {before.line}"
            self._refuse(
                setting.path,
                setting.line,
                f"`{setting.key}` is set in {where}, too; keep one",
            )

    def _paths(self, path: Path) -> list[Path]:
        directory = path.parent / "conf.d"
        paths = [path]
        try:
            # Not what editors leave behind, e.g. `.#50-nginx.yaml`.
            more = [
                entry
                for entry in directory.iterdir()
                if entry.suffix in (".yaml", ".yml") and not entry.name.startswith(".")
            ]
        except (FileNotFoundError, NotADirectoryError):
            more = []
        except OSError as error:
            self._refuse(directory, 0, error.strerror or str(error))
            more = []
        if more:
            self._check_owner(directory, directory.stat())
        return paths + sorted(more, key=lambda entry: entry.name)

    def _refuse(self, path: Path, line: int, text: str) -> None:
        self.problems.append(Problem(path, line, text))

    def _check_owner(self, path: Path, status: os.stat_result) -> bool:
        """Whether only root and this process's user can change what the process is told to do."""
        if status.st_uid not in (0, os.geteuid()):
            self._refuse(
                path, 0, f"belongs to user {status.st_uid}, who could run commands by it; chown it to root"
            )
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            self._refuse(
                path, 0, f"can be written by others (mode {status.st_mode & 0o777:04o}); chmod go-w it"
            )
        else:
            return True
        return False

    def _read(self, path: Path) -> None:
        try:
            # A named pipe without a writer would be waited for.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not self._check_owner(path, status):
                    return
                if not stat.S_ISREG(status.st_mode):
                    self._refuse(path, 0, "is not a regular file")
                    return
                raw = file.read(_MAX_BYTES + 1)
        except PermissionError:
            user = os.geteuid()
            self._refuse(
                path, 0, f"cannot be read by user {user}; chgrp it to that user's group, and chmod g+r it"
            )
            return
        except OSError as error:
            self._refuse(path, 0, error.strerror or str(error))
            return
        if len(raw) > _MAX_BYTES:
            self._refuse(path, 0, "is larger than 1 MiB, which no configuration is")
            return
        try:
            documents = list(lazy.yaml_writer.load_all(raw.decode("utf-8-sig")))
        except UnicodeDecodeError:
            self._refuse(path, 0, "is not UTF-8 text")
            return
        except lazy.yaml_writer.YamlError as error:
            self._refuse(path, error.line, error.message)
            return
        if len(documents) > 1:
            self._refuse(
                path, documents[1].line, "a configuration is one document; use several files in conf.d"
            )
        elif documents and not isinstance(documents[0].content, dict):
            self._refuse(
                path, documents[0].line, "a configuration is a mapping of keys, e.g. `listen: :8443`"
            )
        elif documents:
            self._take(path, documents[0])

    def _take(self, path: Path, document: Any) -> None:
        for name, value in document.content.items():
            line = document.key_lines.get((id(document.content), name), document.line)
            if name in _TYPE_KEYS:
                if value != _TYPE_KEYS[name]:
                    self._refuse(path, line, f"`{name}` is {value!r}; this version reads {_TYPE_KEYS[name]}")
            elif (key := self.keys.get(name)) is None:
                self._refuse(path, line, self._unknown(name))
            else:
                try:
                    shown = key.read(value)
                    given = key.read(value if key.name in _SHELL_KEYS else resolve(value))
                    key.check(given, self._context)
                except click.BadParameter as error:
                    # What a variable or a file contains may be a credential, and the error may quote it.
                    text = (
                        error.message.rstrip(".")
                        if given == shown
                        else f"what {shown!r} stands for is not valid"
                    )
                    self._refuse(path, line, f"`{key.name}`: {text}")
                except ValueError as error:
                    self._refuse(path, line, f"`{key.name}`: {error}")
                else:
                    self.settings.append(Setting(key.name, given, shown, path, line))

    def _unknown(self, name: str) -> str:
        root = self._context.find_root()
        assert isinstance(root.command, click.Group)
        for other in COMMANDS:
            command = root.command.get_command(root, other)
            if command is not None and name in keys_of(command):
                return f"`{name}` is a key of `certwright {other}`"
        if (key := camel_case(name)) in self.keys:
            return f"there is no key `{name}`; write `{key}`"
        near = lazy.difflib.get_close_matches(name, self.keys, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`certwright config schema` lists them"
        return f"there is no key `{name}`; {hint}"

    @property
    def defaults(self) -> dict[str, Any]:
        """The values by parameter, as click's `default_map`."""
        values: dict[str, Any] = {}
        for setting in self.settings:
            key = self.keys[setting.key]
            name = str(key.option.name)
            values[name] = [*values.get(name, ()), *setting.value] if key.is_list else setting.value
        return values


def resolve(value: Any) -> Any:
    """The value with `${NAME}` replaced by the environment's variable, and `file:/path`, at its beginning or
    after a `=`, by the text of that file. `$$` is a dollar sign. Raises `ValueError`."""
    if isinstance(value, list):
        return [resolve(part) for part in value]
    if isinstance(value, dict):
        return {name: resolve(part) for name, part in value.items()}
    if not isinstance(value, str):
        return value
    return _FILE.sub(_content, _VARIABLE.sub(_variable, value))


def _variable(match: re.Match[str]) -> str:
    name = match.group(1)
    if name is None:
        return "$"
    if name not in os.environ:
        raise ValueError(f"the environment has no variable {name}")
    return os.environ[name]


def _content(match: re.Match[str]) -> str:
    path = Path(match.group(2))
    try:
        with path.open("rb") as file:
            return match.group(1) + file.read(_MAX_BYTES).decode().strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None


def schema_of(command: click.Command, name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the configuration of `command`, which is called `name`."""
    properties: dict[str, Any] = {key: {"const": value} for key, value in _TYPE_KEYS.items()}
    properties |= {key.name: key.schema() for key in keys_of(command).values()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Configuration of certwright {name}",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


class Configured(Grouped):
    """A command with `--config FILE`, whose values are the defaults of its other options."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        option = click.Option(
            ["--config"],
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_load,
            help="Read flags from FILE and from conf.d/*.yaml beside it; `certwright config` checks them. "
            "Flags given here win.",
        )
        self.params.insert(0, option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click; keeps the arguments for `reread`."""
        ctx.meta[_ARGUMENTS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _explained(ctx, error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, but errors name the keys of the file instead of their flags."""
        try:
            return super().invoke(ctx)
        except (click.UsageError, Failed) as error:
            raise _explained(ctx, error) from error


def _load(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    files = Files(path, context)
    if any((each.key, each.value) == ("logFormat", "json") for each in files.settings):
        print_as(lazy.logs.json_line)
    if files.problems:
        raise Failed("; ".join(map(str, files.problems)))
    context.default_map = files.defaults
    context.meta[_FILES] = files


def in_keys(context: click.Context, text: str) -> str:
    """The text with the keys of the command's files instead of their flags, after the places of the first one
    that a file sets."""
    files: Files | None = context.meta.get(_FILES)
    if files is None:
        return text
    keys = {key.flag: key for key in files.keys.values() if not _is_typed(context, key.option)}
    places = {each.key: "" for each in files.settings}
    for each in files.settings:
        text = each.hide(text)
        places[each.key] += f"{' and ' if places[each.key] else ''}{each.path}, line {each.line}"
    named = [keys[flag].name for flag in _FLAG.findall(text) if flag in keys]
    where = [f"{places[name]}: " for name in named if name in places]
    text = _FLAG.sub(lambda found: f"`{keys[found[0]].name}`" if found[0] in keys else found[0], text)
    text = text.replace("``", "`").replace("'`", "`").replace("`'", "`").removeprefix("Invalid value for ")
    return "".join(where[:1]) + text


def _explained(context: click.Context, error: click.ClickException) -> click.ClickException:
    text = error.format_message()
    return error if (explained := in_keys(context, text)) == text else Failed(explained)


def _is_typed(context: click.Context, option: click.Parameter) -> bool:
    return context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """The arguments and files of a running command, read again. `settings`: the result of its function while
    `only_reading`; `params`: its arguments. `applied`: the keys, or flags, with new values in `settings`;
    `pending`: those that need a restart."""

    settings: Any
    params: dict[str, Any]
    applied: list[str]
    pending: list[str]

    def __str__(self) -> str:
        parts = [f"applied {', '.join(self.applied)}"] if self.applied else []
        if self.pending:
            parts.append(f"{', '.join(self.pending)} need{'s' if len(self.pending) == 1 else ''} a restart")
        return "; ".join(parts)


def reread(context: click.Context) -> Reread:
    """Parse the arguments of a running command, and its files, again; values that need a restart are
    unchanged. Raises `click.ClickException`."""
    arguments = list(context.meta[_ARGUMENTS])
    fresh = context.command.make_context(context.info_name, arguments, parent=context.parent)
    applied, pending = [], []
    for option in context.command.params:
        name = str(option.name)
        if fresh.params.get(name) == context.params.get(name):
            continue
        flag = max(option.opts, key=len)
        shown = flag if _is_typed(fresh, option) or _FILES not in fresh.meta else camel_case(flag)
        if isinstance(option, Option) and option.flag.reloads:
            applied.append(shown)
        else:
            pending.append(shown)
            fresh.params[name] = context.params[name]
    params = dict(fresh.params)
    fresh.obj = _ONLY_READ
    with fresh:
        settings = context.command.invoke(fresh)
    return Reread(settings=settings, params=params, applied=applied, pending=pending)


def check_together(context: click.Context, path: Path) -> None:
    """Check what only all settings together can show, as the command of the context does at its start. Raises
    `click.ClickException`."""
    fresh = context.command.make_context(context.info_name, ["--config", str(path)], parent=context.parent)
    fresh.obj = _ONLY_READ
    with fresh:
        context.command.invoke(fresh)


def only_reading() -> bool:
    """Whether the function of the command shall only return its settings."""
    return click.get_current_context().obj is _ONLY_READ
