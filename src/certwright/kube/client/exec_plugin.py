"""Exec credential plugins: log-in by an external program, as clusters of the large providers use it.

The program runs for the first request, when its credentials have expired, and when the server refuses them;
never for two requests at once. Import this module only if a kubeconfig names such a program.

Source: Kubernetes documentation, "client-go credential plugins"; client authentication API v1 and v1beta1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import datetime
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import msgspec

from certwright.kube.client.login import Credential, LoginFailed, Plugin
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.programs import read_output

# A plugin whose credentials are always refused must not be run for every request.
_BETWEEN_REFUSALS_S = 10.0

# Timeout of a program without a terminal: one that takes longer will not end at all.
_PATIENCE_S = 60.0

_MOST_OUTPUT = 2**20


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class PluginLogin:
    """Returns the program's credentials; `fixed` fills in the parts that the kubeconfig has itself.

    `now` is the wall clock in seconds since 1970, `has_terminal` whether standard input is a terminal.
    """

    def __init__(
        self,
        plugin: Plugin,
        fixed: Credential = Credential(),  # noqa: B008 - frozen
        *,
        now: Callable[[], float] = time.time,
        has_terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
    ) -> None:
        self._plugin = plugin
        self._fixed = fixed
        self._now = now
        self._has_terminal = has_terminal
        self._current: Credential | None = None
        self._expires: float | None = None
        self._run_at: float | None = None
        self._failed: LoginFailed | None = None
        self._lock = asyncio.Lock()

    async def credential(self) -> Credential:
        """The program's credential, until it expires. Raises `LoginFailed` with the problem."""
        if (current := self._valid()) is not None:
            return current
        async with self._lock:
            if (current := self._valid()) is not None:
                return current
            if self._failed is not None and self._ran_just_now():
                raise self._failed
            try:
                self._run_at, self._failed = self._now(), None
                self._current, self._expires = await self._run_plugin()
            except LoginFailed as error:
                self._failed = error
                raise
            return self._current

    def refused(self, credential: Credential) -> bool:
        """Have the program run again, unless that was just now."""
        if credential != self._current:
            return True
        if self._ran_just_now():
            return False
        self._current = None
        return True

    def _valid(self) -> Credential | None:
        # A clock that shows an earlier time than at the run was ahead then, as was perhaps the expiry.
        was_ahead = self._run_at is not None and self._now() < self._run_at
        over = self._expires is not None and (was_ahead or self._now() >= self._expires)
        return None if over else self._current

    def _ran_just_now(self) -> bool:
        return self._run_at is not None and 0 <= self._now() - self._run_at < _BETWEEN_REFUSALS_S

    async def _run_plugin(self) -> tuple[Credential, float | None]:
        plugin = self._plugin
        interactive = plugin.interactive != "Never" and self._has_terminal()
        if plugin.interactive == "Always" and not interactive:
            raise self._error("needs a terminal (interactiveMode: Always), and standard input is none")
        try:
            process = self._start(interactive=interactive)
        except OSError as error:
            raise self._error(f"cannot be run: {error.strerror}") from None
        assert process.stdout is not None
        patience = None if interactive else _PATIENCE_S
        try:
            output = await read_output(process, process.stdout, most=_MOST_OUTPUT, timeout_s=patience)
        except TimeoutError:
            raise self._error(f"did not end within {_PATIENCE_S:.0f} s") from None
        if process.returncode:
            raise self._error(f"failed with exit code {process.returncode}; what it says is above")
        status = self._read(output)
        expires = status.expiration_timestamp
        credential = Credential(
            status.token or self._fixed.token,
            status.client_certificate_data.encode() or self._fixed.cert_pem,
            status.client_key_data.encode() or self._fixed.key_pem,
        )
        return credential, expires.timestamp() if expires is not None else None

    def _start(self, *, interactive: bool) -> Popen[bytes]:
        plugin = self._plugin
        spec: dict[str, Any] = {"interactive": interactive}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        return Popen(
            (self._program(), *plugin.args),
            env=os.environ | dict(plugin.env) | environment,
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
        )

    def _program(self) -> str:
        command = self._plugin.command
        # A path is relative to the kubeconfig's folder, a bare name is searched in PATH.
        if os.sep in command:
            return str(self._plugin.folder / command)
        if shutil.which(command) is None:
            hint = f"; {self._plugin.install_hint.strip()}" if self._plugin.install_hint.strip() else ""
            raise self._error(f"is not installed (not found in PATH){hint}")
        return command

    def _read(self, output: bytes) -> _Status:
        try:
            answer = json_decoder(_Answer).decode(output)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            # Without the output, which may contain the token.
            raise self._error(f"did not print an ExecCredential: {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise self._error(
                f"printed {answer.kind or 'something'} of {answer.api_version or 'no version'}, "
                f"not ExecCredential of {self._plugin.api_version}, which the kubeconfig requires"
            )
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise self._error("printed an ExecCredential with neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("printed a client certificate without its key, or a key without certificate")
        return status

    def _error(self, sentence: str) -> LoginFailed:
        return LoginFailed(f"{self._plugin.place}: {self._plugin.command} {sentence}")
