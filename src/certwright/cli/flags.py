"""Flags of commands, declared once: as the fields of dataclasses.

`flag` and its relatives declare a field with its flag: name, help, default, and a parser, a function of the
value as given that raises `click.BadParameter`. `flags_of` is the table of all flags of such a group.
"""

from __future__ import annotations

import errno
import functools
import inspect
import re
import socket
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from certwright.cli.errors import report_warning
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.encoding import is_ip_address

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Address = tuple[str, int]
Words = tuple[str, ...]

DEFAULT_LISTEN: Final = ("127.0.0.1", 8443)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - only if the user asks for it
# RFC 1123 §2.1; a wildcard as the leftmost label (RFC 6125 §6.4.3).
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME: Final = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_WIDEST: Final = 30
"""Columns of the names of options in the help."""
_ALL: Final = "certwright.help-all"
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


class _Truth(click.types.BoolParamType):
    """As click's, but an error does not list all twelve accepted words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """See `click.ParamType`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is neither true nor false", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag. `name` may contain a short name, too: `-n, --namespace`. `default` None: no default. `parse`
    gets the value as given; `settings` are click's. `reloads`: a running process applies a new value.
    `section`: of the help; `often`: the short help has it."""

    name: str
    text: str
    metavar: str | None
    default: Any
    parse: Callable[[Any], Any] | None
    settings: dict[str, Any]
    reloads: bool = False
    section: str = ""
    often: bool = False

    def option(self, parameter: str) -> Decorator:
        """Add the flag to a command, as that parameter."""
        settings = {**self.settings, "cls": Option, "flag": self}
        if (parse := self.parse) is not None:
            settings["callback"] = lambda _context, _option, value: parse(value)
        if self.default is not None:
            # Not None: click takes it for the value of a flag that is not given, instead of false.
            settings["default"] = self.default
            settings.setdefault("show_default", not settings.get("multiple") and self.default != "")
        return click.option(
            *self.name.split(", "), parameter, metavar=self.metavar, help=self.text, **settings
        )


class Option(click.Option):
    """A click option with its `Flag`."""

    def __init__(self, *names: Any, flag: Flag, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.flag = flag


class Grouped(click.Command):
    """A command with many options: `--help` shows those that are needed often, `--help-all` all of them, by
    section."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        text = "Show all options and exit."
        shown = click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help=text
        )
        self.params.append(shown)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by section; options without a section first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        left_out = 0
        for option in self.get_params(ctx):
            flag = option.flag if isinstance(option, Option) else None
            if (record := option.get_help_record(ctx)) is None:
                continue
            if flag is None or not flag.section or flag.often or _ALL in ctx.meta:
                sections.setdefault(flag.section if flag and flag.section else "Options", []).append(record)
            else:
                left_out += 1
        for title, records in sections.items():
            with formatter.section(title):
                _write_options(formatter, records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")


def _show_all(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def _write_options(formatter: click.HelpFormatter, records: Sequence[tuple[str, str]]) -> None:
    """As `write_dl`, but words are never broken, so that defaults can be copied."""
    indent = " " * formatter.current_indent
    column = min(max(len(name) for name, _ in records), _WIDEST) + 2
    for name, text in records:
        lines = textwrap.wrap(
            text,
            formatter.width - len(indent) - column,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        first = [name.ljust(column) + lines.pop(0)] if len(name) + 2 <= column else [name]
        formatter.write("".join(f"{indent}{line}\n" for line in (*first, *(" " * column + r for r in lines))))


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument among the flags of a group. `settings` are click's."""

    metavar: str | None
    settings: dict[str, Any]
    section: str = ""

    def option(self, parameter: str) -> Decorator:
        """Add the argument to a command, as that parameter."""
        return click.argument(parameter, metavar=self.metavar, **self.settings)


def flag(
    name: str,
    text: str,
    *,
    metavar: str | None = None,
    default: Any = None,
    parse: Callable[[Any], Any] | None = None,
    reloads: bool = False,
    section: str = "",
    often: bool = False,
    **settings: Any,
) -> Any:
    """A field for a flag whose help is `text` and shows the default."""
    shown = Flag(
        name=name,
        text=text,
        metavar=metavar,
        default=default,
        parse=parse,
        settings=settings,
        reloads=reloads,
        section=section,
        often=often,
    )
    is_optional = default is None and not settings.keys() & {"required", "multiple", "is_flag"}
    return field(default=None if is_optional else MISSING, metadata={"flag": shown})


def repeated(name: str, text: str, *, metavar: str, parse: Callable[[Any], Any], **settings: Any) -> Any:
    """A flag that may be given several times; `parse` gets all its values."""
    return flag(name, text, metavar=metavar, parse=parse, multiple=True, **settings)


def words(name: str, text: str, *, metavar: str = "NAME,…", default: Words = (), **settings: Any) -> Any:
    """A list: the flag may be repeated, and each value may contain several words with commas between."""
    return repeated(name, text, metavar=metavar, parse=split_words, default=default, **settings)


def switch(name: str, text: str, *, default: bool, **others: Any) -> Any:
    """A flag that is true or false; as Go's flags, without a value it means true."""
    text = f"{text}  [default: {str(default).lower()}]"
    settings: dict[str, Any] = {"type": _Truth(), "is_flag": False, "flag_value": True, "show_default": False}
    return flag(name, text, metavar="BOOL", default=default, **settings, **others)


def duration(
    name: str, text: str, *, default: str, parse: Callable[[str], timedelta] | None = None, **settings: Any
) -> Any:
    """A duration such as `90s` or `1h30m`."""
    return flag(name, text, metavar="DURATION", default=default, parse=parse or parse_period, **settings)


def number(
    name: str, text: str, *, default: int, at_least: int = 1, metavar: str = "N", **settings: Any
) -> Any:
    """A number, `at_least` or more."""
    return flag(name, text, metavar=metavar, type=click.IntRange(min=at_least), default=default, **settings)


def seconds(name: str, text: str, *, default: str, **settings: Any) -> Any:
    """A time such as `30`, `0.5`, `30s` or `2m`, in seconds."""
    return flag(name, text, metavar="TIME", default=default, parse=parse_timeout, **settings)


def file(name: str, text: str, *, exists: bool = False, **settings: Any) -> Any:
    """The path of a file."""
    kind = click.Path(path_type=Path, dir_okay=False, exists=exists)
    return flag(name, text, metavar="FILE", type=kind, **settings)


def directory(name: str, text: str, *, default: Path | None = None, **settings: Any) -> Any:
    """The path of a directory."""
    kind = click.Path(path_type=Path, file_okay=False)
    return flag(name, text, metavar="DIR", type=kind, default=default, **settings)


def argument(*, metavar: str | None = None, **settings: Any) -> Any:
    """An argument of a command: it has no flag, and no help of its own."""
    return field(metadata={"flag": Argument(metavar, settings)})


def removed(name: str, advice: str) -> Any:
    """A former flag, accepted for one release with a warning; no part of the group's values."""

    def warn(value: str | None) -> None:
        if value is not None:
            report_warning(f"{name} no longer has any effect{advice}")

    text = "Has no effect any more; accepted for one release."
    settings = {"hidden": True, "expose_value": False}
    former = Flag(name=name, text=text, metavar=None, default=None, parse=warn, settings=settings)
    return field(init=False, default=None, metadata={"flag": former})


def group(kind: type) -> Any:
    """A field for a group of flags within another."""
    return field(metadata={"group": kind})


def flags_of(kind: type) -> Iterator[tuple[str, Flag | Argument]]:
    """The flags of a group and its subgroups, in order, each with its parameter. `SECTION` of the group is
    the section of flags without one."""
    for each in fields(kind):
        if (inner := each.metadata.get("group")) is not None:
            yield from flags_of(inner)
            continue
        declared = each.metadata["flag"]
        if not declared.section:
            declared = replace(declared, section=getattr(kind, "SECTION", ""))
        yield each.name, declared


def gathered(name: str, make: Callable[..., Any], options: Sequence[Decorator] = ()) -> Decorator:
    """Add the options to a command. In place of the parameters of `make`, the command gets one argument
    `name`: the result of `make`."""
    return _gather(name, tuple(inspect.signature(make).parameters), make, options)


def flag_options(name: str, kind: type, **others: Any) -> Decorator:
    """Add the flags of the group to a command, which gets them as one argument `name` of that type. `others`:
    flags to use in place of the group's, by parameter; None: no flag, and the field's default."""
    declared = dict(flags_of(kind))
    for parameter, other in others.items():
        if other is None:
            del declared[parameter]
        else:
            section = declared[parameter].section
            declared[parameter] = replace(other.metadata["flag"], section=section)
    options = [each.option(parameter) for parameter, each in declared.items()]
    parameters = [
        parameter for parameter, each in declared.items() if each.settings.get("expose_value", True)
    ]

    def make(group: type, given: dict[str, Any]) -> Any:
        parts = {each.name: each.metadata.get("group") for each in fields(group) if each.init}
        values = {key: given[key] for key in parts.keys() & given.keys()}
        return group(**values, **{key: make(part, given) for key, part in parts.items() if part is not None})

    return _gather(name, parameters, lambda **given: make(kind, given), options)


def _gather(
    name: str, parameters: Sequence[str], make: Callable[..., Any], options: Sequence[Decorator]
) -> Decorator:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gather(*args: Any, **given: Any) -> Any:
            value = make(**{parameter: given.pop(parameter) for parameter in parameters})
            return command(*args, **{name: value}, **given)

        wrapped: Callable[..., Any] = gather
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return add


def single(parameter: str, declared: Any) -> Decorator:
    """Add one flag to a command, as that parameter."""
    option: Decorator = declared.metadata["flag"].option(parameter)
    return option


def values_of(flags: Any) -> dict[str, Any]:
    """The values of a group by parameter, without those of the groups in it."""
    return {
        each.name: getattr(flags, each.name)
        for each in fields(flags)
        if each.init and "flag" in each.metadata
    }


def split_words(values: Words) -> Words:
    """The words of a list, without white space around them."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def parse_period(value: str) -> timedelta:
    """A duration that is not negative."""
    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if duration < timedelta(0):
        raise click.BadParameter(f"{value!r} cannot be negative")
    return duration


def parse_address(value: str | None) -> Address | None:
    """`HOST:PORT`, `[IPV6]:PORT` or `:PORT`, which is every address of this machine; its host is then
    empty."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise click.BadParameter(f"`{value}` is not HOST:PORT, e.g. :80 or 127.0.0.1:8443")
    if int(port) > 65535:
        raise click.BadParameter(f"`{value}`: port {port} is too large (65535 at most)")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise click.BadParameter(f"`{value}`: write an IPv6 address in brackets, e.g. [::1]:8443")
    return host.strip("[]"), int(port)


def parse_names(values: Words) -> Words:
    """DNS names and IP addresses, as `split_words`."""
    names = split_words(values)
    for name in names:
        if not is_ip_address(name) and (len(name) > 253 or not _DNS_NAME.fullmatch(name)):
            raise click.BadParameter(
                f"`{name}` is neither a DNS name nor an IP address; write e.g. pki.example.com or 192.0.2.1"
            )
    return names


def parse_timeout(value: str) -> float:
    """The seconds of `30`, `0.5`, `30s`, `2m`."""
    try:
        period = float(value) if _NUMBER.fullmatch(value) else parse_duration(value).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if period < 0:
        raise click.BadParameter(f"{value!r} cannot be negative")
    return period


def is_free(host: str, port: int) -> bool:
    """Whether the port is free now. Another process may take it a moment later."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do, so that lingering connections of the last run do not interfere.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
