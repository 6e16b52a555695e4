"""Commands of the operator that run after files were replaced, by `/bin/sh -c`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from subprocess import DEVNULL, STDOUT, Popen
from typing import IO

from certwright.kube.util.encoding import holds_private_key, one_line
from certwright.kube.util.programs import wait_ended

DEFAULT_TIMEOUT_S = 60.0
_LONGEST_REASON = 500
# More than is shown, so that a private key is recognised by its first line.
_READ = 65_536
# Never passed on: it decrypts the store.
_WITHHELD = ("CERTWRIGHT_ENCRYPTION_KEY",)


class HookError(Exception):
    """The command failed; the text is one sentence."""


async def run_hook(
    command: str, variables: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> None:
    """Run the command line with `variables` added to the environment of this process.

    After `timeout_s` seconds it is killed with its children. Raises `HookError`.
    """
    inherited: dict[str, str] = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
    # A file and not a pipe, because a program that the command leaves running keeps a pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            status = await wait_ended(
                _start(command, {**inherited, **variables}, output), timeout_s=timeout_s
            )
        except TimeoutError:
            raise HookError(f"it did not end within {timeout_s:g} s and was killed") from None
        except (OSError, ValueError) as error:
            raise HookError(f"it cannot be run: {getattr(error, 'strerror', '') or error}") from error
        if status != 0:
            raise HookError(f"it ended with status {status}: {_end_of(output) or 'it printed nothing'}")


def _start(command: str, environment: Mapping[str, str], output: IO[bytes]) -> Popen[bytes]:
    return Popen(
        ("/bin/sh", "-c", command),
        env=environment,
        stdin=DEVNULL,
        stdout=output,
        stderr=STDOUT,
        process_group=0,
    )


def _end_of(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _READ))
    text = output.read().decode(errors="replace")
    if holds_private_key(text):
        return "what it printed contains a private key and is not shown"
    return one_line(text)[-_LONGEST_REASON:]
