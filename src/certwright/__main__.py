"""`python -m certwright`: the same program as the console script."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> None:
    """Run the command line and exit with its status: 0 done, 1 failed, 2 wrong use, 130 Ctrl-C."""
    # FIRST: `serve` and `controllers` reload on this signal, and until they can it would end them. The others
    # unblock it when they are loaded.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    # Loading modules makes many objects and no garbage; `app.loop` sets what a server needs.
    gc.set_threshold(100_000, 20, 20)
    try:
        from certwright.cli.main import program  # Ctrl-C while it loads ends as quietly as any later one
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        program(prog_name="certwright")
    finally:
        # The process ends, and its memory with it: no search for garbage.
        gc.freeze()


if __name__ == "__main__":
    main()
