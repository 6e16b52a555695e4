"""The program: a table of commands, each imported only when it is used.

`certwright --help` imports click and nothing else, so the one-line descriptions are here; a test
compares them with the commands' own.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import click

from certwright import __version__
from certwright.cli import errors, lazy
from certwright.cli.errors import report_error

COMMANDS: dict[str, dict[str, str]] = {
    "Start": {
        "run": "Serve, apply FILEs, issue and renew their certificates, export them as files.",
        "serve": "Run the server: API, store and controllers, until stopped.",
        "controllers": "Run only the controllers, against a server elsewhere.",
        "setup": "Set up the service, and servers that present certificates.",
        "doctor": "Check the service on this machine, and name the fix of each problem.",
        "config": "Check and show the configuration file of `serve` or `controllers`.",
    },
    "Objects": {
        "create": "Create a certificate, a CA or an issuer from options, without YAML.",
        "apply": "Create or change the objects that files describe.",
        "diff": "Show what `apply` would change.",
        "get": "List objects, or print them as YAML or JSON.",
        "describe": "Show one object in full, with its conditions and events.",
        "edit": "Change an object in an editor.",
        "events": "List events, oldest first.",
        "explain": "Describe a kind and its fields.",
        "delete": "Delete objects.",
        "wait": "Wait until objects have a condition, or are gone.",
    },
    "Certificates": {
        "status": "Show why a certificate or an issuer is (or is not) ready, and what happens next.",
        "renew": "Renew certificates now.",
        "revoke": "Have an ACME server revoke a certificate.",
        "report": "Report whether every certificate is all right: as text, a page or JSON.",
        "dashboard": "Open the dashboard in a browser, logged in.",
        "approve": "Allow certificate requests to be signed.",
        "deny": "Forbid certificate requests to be signed.",
        "check": "Check a solver, an API server, or a switch from cert-manager.",
        "expiring": "List certificates by expiry: of the server, in files, on hosts.",
        "export": "Copy a certificate's files to this machine, once or at every renewal.",
        "import": "Import accounts, keys and certificates of other programs.",
        "inspect": "Show what is inside a certificate's Secret.",
        "limits": "Show the rate limits of ACME servers, and their use.",
        "trust": "Install a CA in the trust stores of this machine.",
    },
    "Store": {
        "backup": "Save all objects of a server's store in a file.",
        "restore": "Fill an empty store from a file that `certwright backup` wrote.",
        "encryption": "Show how Secrets are encrypted in the store; change the keys.",
    },
    "Users": {
        "user": "Create, list and delete users of the server, with kubeconfigs.",
    },
    "More": {
        "crds": "Print the CustomResourceDefinitions for a real Kubernetes cluster.",
        "completion": "Print the completion script of a shell.",
        "help": "Show the help of a command.",
        "version": "Print the version.",
    },
}
_SHORT = {name: short for section in COMMANDS.values() for name, short in section.items()}
_MEANT = {
    "api-resources": "explain",
    "ca": "create ca",
    "cert": "create certificate",
    "certificate": "create certificate",
    "certificates": "get certificates",
    "certs": "get certificates",
    "daemon": "serve",
    "init": "setup",
    "install": "setup",
    "issue": "create certificate",
    "issuer": "create issuer",
    "issuers": "get issuers",
    "list": "get",
    "log": "events",
    "logs": "events",
    "ls": "get",
    "new": "create",
    "ps": "get",
    "remove": "delete",
    "request": "create certificate",
    "rm": "delete",
    "save": "backup",
    "scan": "expiring --scan",
    "server": "serve",
    "show": "describe",
    "start": "serve",
    "up": "serve",
    "validate": "apply --dry-run",
    "verify": "check",
}
"""What users of other programs type, and the command that does it."""
_AHEAD = {
    "-n": True,
    "--namespace": True,
    "--kubeconfig": True,
    "--context": True,
    "-A": False,
    "--all-namespaces": False,
}
"""Options that may precede a command that has them, and whether a value follows."""
_PLACES = {
    "completion": ("about", "completion"),
    "crds": ("about", "crds"),
    "deny": ("approve", "deny"),
    "help": ("about", "help_command"),
    "import": ("import_", "command"),
    "restore": ("backup", "restore"),
    "version": ("about", "version"),
}
"""Module and function of the commands that are not `command` in the module of their name."""
# They unblock SIGHUP, which `__main__` has blocked, when they have its handler.
_RELOADING = ("serve", "controllers")
# Errors of a write that do not name the file.
_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class _Formatter(click.HelpFormatter):
    """click's, but words with hyphens, such as paths and flags, are not broken: they are copied."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """See `click.HelpFormatter`."""
        begin = len(self.buffer)
        super().write_dl([(term, text.replace("-", _HYPHEN)) for term, text in rows], col_max, col_spacing)
        self.buffer[begin:] = [text.replace(_HYPHEN, "-") for text in self.buffer[begin:]]


click.Context.formatter_class = _Formatter


class Program(click.Group):
    """The group of all commands, and the only place that converts errors to sentences and exit statuses."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands, in the order of the help."""
        return list(_SHORT)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        if cmd_name not in _SHORT:
            return None
        if cmd_name not in _RELOADING:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
        module, function = _PLACES.get(cmd_name, (cmd_name, "command"))
        command: click.Command = getattr(
            importlib.import_module(f"certwright.cli.commands.{module}"), function
        )
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, but the options of commands that select the server may also precede the command, as
        for kubectl."""
        return super().parse_args(ctx, self._with_options_behind(ctx, args))

    def _with_options_behind(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words with those options behind the command, where they are the defaults of its own."""
        ahead: list[str] = []
        rest = list(args)
        own: list[str] = []
        while rest and rest[0].startswith("-") and rest[0] != "--":
            word = rest.pop(0)
            name = word.partition("=")[0]
            if name in _AHEAD or (word.startswith("-n") and not word.startswith("--")):
                ahead.append(word)
                if _AHEAD.get(word):
                    if not rest and not ctx.resilient_parsing:
                        raise click.UsageError(f"option `{word}` needs a value", ctx)
                    ahead += rest[:1]
                    del rest[:1]
            else:
                own.append(word)
        if not ahead:
            return args
        if not rest and not ctx.resilient_parsing:
            raise click.UsageError("name a command behind the options; `certwright --help` lists all", ctx)
        command: click.Command | None = self
        place = 0
        while isinstance(command, click.Group) and place < len(rest) and not rest[place].startswith("-"):
            command = command.get_command(ctx, rest[place])
            place += 1
        return [*own, *rest[:place], *ahead, *rest[place:]]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but the error for an unknown name suggests the nearest one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _SHORT:
            near = (
                [_MEANT[name]]
                if name in _MEANT
                else lazy.difflib.get_close_matches(name, _SHORT, n=1, cutoff=0.7)
            )
            hint = f"did you mean `{near[0]}`?" if near else "`certwright --help` lists the commands."
            raise click.UsageError(f"there is no command `{name}`; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """The commands by purpose, without importing any of them."""
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_spacing=3)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A closed output pipe is not a failure, unlike in click."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_output()
            return None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command and exit with 0, 1 or 2."""
        status = 0
        errors.print_as(_json_line(args[0] if args else extra.get("args") or sys.argv[1:]))
        try:
            super().main(*args, **{**extra, "standalone_mode": False})
        except SystemExit as end:  # shell completion ends so
            status = end.code if isinstance(end.code, int) else 1
        except BaseException as error:
            status = _report_error(error)
        _flush()
        sys.exit(status)


def _json_line(words: Sequence[str]) -> errors.LogLine | None:
    """The JSON format, if the command line requests it, for errors about other options."""
    if "--log-format=json" not in words and ("--log-format", "json") not in itertools.pairwise(words):
        return None
    from certwright.kit.logs import json_line  # only where it is asked for

    return json_line


def debugging() -> bool:
    """Whether the user asked for tracebacks (`--debug`, or CERTWRIGHT_DEBUG=1)."""
    return os.environ.get("CERTWRIGHT_DEBUG", "") not in ("", "0")


def _report_error(error: BaseException) -> int:
    """Print the message for `error`, and return the exit status."""
    if debugging() and not isinstance(error, click.ClickException | click.exceptions.Exit):
        traceback.print_exception(error)
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.UsageError():
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                error.show()
                return error.exit_code
            context = error.ctx
            # click lists the choices of a missing option below each other.
            message = " ".join(error.format_message().split()).rstrip(".")
            if context is None or message.endswith(("?", "`")) or context.parent is None:
                report_error(message)
            else:
                report_error(f"{message}; `{context.command_path} --help` shows its usage")
            return error.exit_code
        case errors.Failed() | errors.AlreadyReported():
            error.show()
            return error.exit_code
        case click.ClickException():
            report_error(error.format_message())
            return error.exit_code
        case KeyboardInterrupt() | click.exceptions.Abort():
            return _INTERRUPTED
        case _:
            report_error(_unforeseen(error))
            return 1


def _unforeseen(error: BaseException) -> str:
    if isinstance(error, (lazy.api_errors.ApiError, lazy.api_errors.Unreachable)):
        return str(error)
    if isinstance(error, OSError):
        where = str(error.filename) if error.filename else "writing failed" if error.errno in _IS_FULL else ""
        if error.errno == errno.EACCES and where.endswith("kubeconfig"):
            return (
                f"{where}: {error.strerror}; run it with sudo, or have `certwright user create` make you a "
                "kubeconfig"
            )
        return f"{where}: {error.strerror or error}" if where else error.strerror or str(error)
    name = type(error).__name__
    return f"internal error: {name}: {error} (CERTWRIGHT_DEBUG=1 shows where)"


def _flush() -> None:
    if sys.stdout is None:  # `>&-` closed it
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def _drop_output() -> None:
    """Discard further output: the reader has closed the pipe, and Python's flush at exit must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands find the server by --kubeconfig, then $KUBECONFIG, then ./certwright-data/kubeconfig, "
    "then, as root, the service's. -n, -A, --kubeconfig and --context may precede the command. "
    "Exit statuses: 0 done, 1 failed, 2 wrong use.",
)
@click.version_option(
    __version__, "-V", "--version", message="%(prog)s %(version)s", help="Print the version."
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors (as CERTWRIGHT_DEBUG=1 does).")
def program(*, debug: bool) -> None:
    """Declare X.509 certificates in YAML; have them issued, stored and renewed.

    Uses cert-manager's Kubernetes API, with or without a Kubernetes cluster.

    \b
    First steps:
      certwright run examples/quickstart.yaml   certificates from a file
      certwright status web                     is it ready, and what comes next?
    """
    if debug:
        os.environ["CERTWRIGHT_DEBUG"] = "1"
