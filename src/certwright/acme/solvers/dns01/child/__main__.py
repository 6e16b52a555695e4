"""Answer one request: `python -m certwright.acme.solvers.dns01.child`."""

from __future__ import annotations

import faulthandler
import os
import sys

import msgspec

from certwright.acme.solvers.dns01.child import messages, plugin
from certwright.acme.solvers.dns01.child.lexicon import Lexicon
from certwright.acme.solvers.dns01.child.messages import Answer, Busy, Failed, Rejected, Request
from certwright.acme.solvers.dns01.child.messages import ProviderContract as Provider
from certwright.kube.util.decoders import json_decoder


def main() -> None:
    """Read a request, write the answer, end."""
    answers = os.dup(sys.stdout.fileno())
    # What a provider prints must not mix with the answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json_decoder(Request).decode(sys.stdin.buffer.read())
    # Also where the provider blocks in C code, or catches everything.
    faulthandler.dump_traceback_later(request.seconds, exit=True)
    answer = answer_to(request, json_decoder(messages.Provider).decode(request.provider))
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(msgspec.json.encode(answer))
    # Threads and exit handlers of the provider are not waited for.
    os._exit(0)


def answer_to(request: Request, settings: messages.Provider) -> Answer:
    """Do what is requested."""
    provider: Lexicon | plugin.Plugin | None = None
    try:
        provider = Lexicon(settings) if settings.kind == "lexicon" else plugin.Plugin(settings)
        return Answer(found=_act(request, provider))
    except Failed as error:
        return _failure(error)
    # SystemExit and others end no child without an answer.
    except BaseException as error:
        if isinstance(provider, Lexicon) and isinstance(error, Exception):
            return _failure(provider.explain(error))
        return _failure(plugin.explain(error))


def _act(request: Request, provider: Provider) -> bool:
    match request.action:
        case "verify":
            provider.verify()
            return True
        case "find_zone":
            return provider.has_zone(request.zone)
        case "apply":
            for change in request.changes:
                act = provider.add if change.adds else provider.remove
                act(request.zone, change.name, change.value)
            return True


def _failure(error: Failed) -> Answer:
    return Answer(
        reason=str(error) or "it gives no reason",
        rejected=isinstance(error, Rejected),
        retry_after=error.retry_after if isinstance(error, Busy) else "",
    )


if __name__ == "__main__":
    main()
