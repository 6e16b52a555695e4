"""docs/reference/flags.md, from the options of click."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence

import click

from certwright.cli.flags import Option
from certwright.cli.main import COMMANDS, program
from house.reference.tables import GENERATED, table

DAEMONS = ("run", "serve", "controllers")
CONNECTION = {"--kubeconfig", "--context", "--namespace"}
SERVER_ANCHOR = "#flags-that-choose-the-server"
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$", re.S)

RELOADS = (
    "With `yes` in the column *reloads*, `serve` and `controllers` apply another value of the\n"
    "[configuration file](../configuration.md) on SIGHUP; the others need a restart."
)
INTRODUCTION = f"""# Commands and flags

{GENERATED} `certwright COMMAND --help` prints the same with examples. The flags of `run`,
`serve` and `controllers` are in [one table](#flags-of-run-serve-and-controllers) below. How a command finds the
server, environment variables and exit statuses: [environment.md](environment.md).
"""


def page() -> str:
    """The text of the page."""
    context = click.Context(program, info_name="certwright")
    parts = [INTRODUCTION]
    for title, names in COMMANDS.items():
        parts.append(f"## {title}\n")
        for name in names:
            command = program.get_command(context, name)
            assert command is not None
            parts += _sections(command, click.Context(command, parent=context, info_name=name))
    parts += ["## Flags that choose the server\n", _connection_flags(context) + "\n"]
    parts += [f"## Flags of run, serve and controllers\n\n{RELOADS}\n", _daemon_flags(context), ""]
    return "\n".join(parts)


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """The command and, of a group, the commands below it."""
    path = context.command_path.removeprefix("certwright ")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### {path}\n"
    yield f"`{context.command_path} {usage}`\n"
    yield _sentence(command) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _sections(inner, click.Context(inner, parent=context, info_name=name))
    elif path not in DAEMONS:
        options = _options(command)
        own = [option for option in options if not _is_of_connection(option)]
        if len(own) < len(options):
            yield f"Also [the flags that choose the server]({SERVER_ANCHOR}).\n"
        if own:
            rows = [(_names(option), _default(option), _meaning(option)) for option in own]
            yield table(("flag", "default", "meaning"), rows) + "\n"


def _is_of_connection(option: click.Option) -> bool:
    return not CONNECTION.isdisjoint(option.opts)


def _connection_flags(context: click.Context) -> str:
    """Those of `get`, which has all three."""
    command = program.get_command(context, "get")
    assert command is not None
    options = [option for option in _options(command) if _is_of_connection(option)]
    return table(("flag", "default", "meaning"), [(_names(o), _default(o), _meaning(o)) for o in options])


def _sentence(command: click.Command) -> str:
    """The first paragraph of the command's help."""
    text = inspect.cleandoc(command.help or command.short_help or "").replace("\f", "")
    return " ".join(text.split("\n\n")[0].split())


def _options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _names(option: click.Option) -> str:
    names = "/".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = option.make_metavar(click.Context(click.Command("x"))) if _takes_value(option) else ""
    return f"{names} `{metavar}`" if metavar else names


def _takes_value(option: click.Option) -> bool:
    return not option.is_flag and not option.count


def _default(option: click.Option) -> str:
    written = _DEFAULT.search(option.help or "")
    if written:
        return f"`{written[1]}`"
    if option.show_default and option.default not in (None, (), ""):
        shown = option.show_default if isinstance(option.show_default, str) else str(option.default)
        return f"`{shown}`"
    return ""


def _meaning(option: click.Option) -> str:
    text = " ".join(_DEFAULT.sub("", option.help or "").split())
    needed = "Required. " if option.required else ""
    several = " May be repeated." if option.multiple and "repeat" not in text.lower() else ""
    return f"{needed}{text}{several}"


def _daemon_flags(context: click.Context) -> str:
    rows: dict[str, tuple[click.Option, list[str]]] = {}
    for daemon in DAEMONS:
        command = program.get_command(context, daemon)
        assert command is not None
        for option in _options(command):
            name = max(option.opts, key=len)
            rows.setdefault(name, (option, []))[1].append(daemon)
    lines = [
        (_names(option), _default(option), _where(names), _reloads(option), _meaning(option))
        for _, (option, names) in sorted(rows.items())
    ]
    return table(("flag", "default", "of", "reloads", "meaning"), lines)


def _reloads(option: click.Option) -> str:
    return "yes" if isinstance(option, Option) and option.flag.reloads else ""


def _where(names: Sequence[str]) -> str:
    return "all" if len(names) == len(DAEMONS) else ", ".join(f"`{name}`" for name in names)
