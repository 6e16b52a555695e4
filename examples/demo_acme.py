"""examples/acme/acme.yaml without the Internet: `make demo-acme`.

Starts Pebble (Let's Encrypt's test server) and its name server on loopback, writes a copy of acme.yaml that
names them, and runs `certwright run` with it. Needs the tools of `make pebble`.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from support.pebble import Pebble, running_pebble

_EXAMPLE = Path(__file__).parent / "acme" / "acme.yaml"
_SERVER = "https://acme-staging-v02.api.letsencrypt.org/directory"


def command(pebble: Pebble, folder: Path) -> list[str]:
    """The command line; the manifest is written into `folder`."""
    bundle = base64.b64encode(pebble.ca_bundle).decode()
    manifest = folder / "acme.yaml"
    named = f"server: {pebble.directory}\n    caBundle: {bundle}"
    manifest.write_text(_EXAMPLE.read_text().replace(f"    server: {_SERVER}", f"    {named}"))
    where = f"127.0.0.1:{pebble.http_port}"
    return [
        *(sys.executable, "-m", "certwright", "run", str(manifest)),
        *("--data-dir", str(folder / "data"), "--export", "certwright-demo-export"),
        *("--http01-listen", where),
        *("--http01-check-port", str(pebble.http_port)),
        *("--acme-http01-solver-nameservers", pebble.names.address),
    ]


def main() -> int:
    """Run it with the arguments of this program."""
    # Of several profiles Pebble would pick one at random.
    profiles = {"default": {"description": "90 days", "validityPeriod": 7776000}}
    with running_pebble(profiles=profiles) as pebble, tempfile.TemporaryDirectory(prefix="demo-") as name:
        print(f"Pebble is at {pebble.directory}; all names lead to 127.0.0.1", flush=True)
        try:
            return subprocess.run([*command(pebble, Path(name)), *sys.argv[1:]], check=False).returncode
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
