"""Exec solver: a program of the operator presents the challenge, e.g. for an unsupported provider.

It is run as `PROGRAM… present` and `PROGRAM… cleanup`, with the challenge in its environment, and without
the environment of this process, which may contain the key of the Secrets:

    ACME_TYPE      http-01, dns-01, dns-account-01 or tls-alpn-01
    ACME_NAME      the name or address to be validated, without `*.`
    ACME_WILDCARD  true for a wildcard name, else false
    ACME_TOKEN     the challenge's token (the last part of the path of http-01)
    ACME_VALUE     what to present: the body of the page, or the value of the TXT record
    ACME_RECORD    (dns-01, dns-account-01) the name of the TXT record, without a final dot
    ACME_UID       the same for both runs of one challenge
    PATH           the system's directories, unless the operator names others (`--exec-solver-env-file`)

Exit status 0 is success; otherwise the last output on standard error becomes the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE, Popen

from certwright.acme.protocol.challenges import DNS_01, DNS_ACCOUNT_01
from certwright.acme.solvers.contract import SolverError, Task
from certwright.kube.util.encoding import one_line
from certwright.kube.util.programs import read_output

_LONGEST_REASON = 500
# In UTF-8.
_LONGEST_OUTPUT = 4 * _LONGEST_REASON
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Program:
    """Runs the program, and kills it with its children after `timeout_s` seconds. `environment`: the
    operator's additions to `ACME_*`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self._operators = dict(environment or {})
        self._command = tuple(command)
        self._timeout_s = timeout_s

    async def present(self, task: Task) -> None:
        await self._run("present", task)

    async def clean_up(self, task: Task) -> None:
        await self._run("cleanup", task)

    async def _run(self, verb: str, task: Task) -> None:
        call = f"`{self._command[0]} {verb}` for {task.identifier}"
        try:
            process = self._start(verb, task)
        except (OSError, ValueError) as error:
            raise SolverError(f"{call} cannot be run: {getattr(error, 'strerror', '') or error}") from error
        assert process.stderr is not None
        try:
            said = await read_output(process, process.stderr, most=_LONGEST_OUTPUT, timeout_s=self._timeout_s)
        except TimeoutError:
            raise SolverError(f"{call} did not end within {self._timeout_s:g} s and was killed") from None
        if process.returncode != 0:
            reason = one_line(said.decode(errors="replace"))[-_LONGEST_REASON:]
            raise SolverError(
                f"{call} ended with status {process.returncode}: {reason or 'it printed nothing'}"
            )

    def _start(self, verb: str, task: Task) -> Popen[bytes]:
        variables = {
            "ACME_TYPE": task.type,
            "ACME_NAME": task.identifier,
            "ACME_WILDCARD": str(task.wildcard).lower(),
            "ACME_TOKEN": task.token,
            "ACME_VALUE": task.key,
            "ACME_UID": task.uid,
        }
        if task.type in (DNS_01, DNS_ACCOUNT_01):
            variables["ACME_RECORD"] = task.record
        return Popen(
            (*self._command, verb),
            env={"PATH": _PATH, **self._operators, **variables},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            process_group=0,
        )
