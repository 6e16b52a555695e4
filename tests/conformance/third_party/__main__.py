"""Other projects' controllers on our API server: `make third-party`.

Runs cert-manager's controllers, a webhook on its framework, approver-policy, aws-privateca-issuer and
trust-manager, as released, against `certwright serve`. Prints one line for each check. Ends with 1 if a check
fails, with 2 if a program could not be started.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from conformance.third_party import (
    approver_policy,
    aws_privateca_issuer,
    cert_manager,
    dns_webhook,
    trust_manager,
)
from conformance.third_party.chart import Check

PROGRAMS: Mapping[str, str] = {
    "cert-manager": "its controllers, without ours: every Certificate Ready, and issued once",
    "approver-policy": "approves and denies the CertificateRequests of our controllers, by its policies",
    "aws-privateca-issuer": "signs, as an external issuer, for the Certificates of our controllers",
    "dns-webhook": "a DNS-01 webhook on cert-manager's framework, called through the front proxy",
    "trust-manager": "distributes a CA that our controllers issue and renew, as ConfigMaps",
}


def main() -> int:
    """Run what the arguments name."""
    arguments = _arguments()
    runs: dict[str, Callable[[Path], list[Check]]] = {
        "cert-manager": lambda folder: cert_manager.run(folder, arguments.certificates),
        "approver-policy": approver_policy.run,
        "aws-privateca-issuer": aws_privateca_issuer.run,
        "dns-webhook": dns_webhook.run,
        "trust-manager": trust_manager.run,
    }
    worst = 0
    for name in arguments.programs or PROGRAMS:
        print(f"{name}: {PROGRAMS[name]}", flush=True)
        worst = max(worst, _run(name, runs[name]))
    return worst


def _run(name: str, run: Callable[[Path], list[Check]]) -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="third-party-") as folder:
            checks = run(Path(folder))
    except (pytest.skip.Exception, pytest.fail.Exception, TimeoutError, RuntimeError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    for check in checks:
        print(f"  {'ok   ' if check.passed else 'WRONG'} {check.text}", flush=True)
    return 0 if all(check.passed for check in checks) else 1


def _arguments() -> argparse.Namespace:
    programs = "\n".join(f"  {name:20} {text}" for name, text in PROGRAMS.items())
    parser = argparse.ArgumentParser(
        prog="make third-party ARGS=…",
        description=(__doc__ or "").split("\n")[0],
        epilog=f"programs:\n{programs}\n\nThe first run builds them, which takes minutes each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="which ones (default: all)")
    parser.add_argument(
        "--certificates", type=int, default=500, help="for cert-manager (default: %(default)s)"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.programs) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
