"""`python -m certwright`: the same program as the console script."""

from __future__ import annotations

from certwright.cli.main import program


def main() -> None:
    """Run the command line and exit with its status: 0 done, 1 failed, 2 wrong use."""
    program(prog_name="certwright")


if __name__ == "__main__":
    main()
