"""Run the benchmarks by name, or all of them.

make bench                                 every one
make bench ARGS="issuance"                 one
make bench ARGS="apiserver --only rates"   one, with options of its own (see its --help)
make bench ARGS=--list                     their names
"""

from __future__ import annotations

import importlib
import itertools
import sys

BENCHMARKS = {
    "issuance": "one certificate, 500 ECDSA and 200 RSA at once, from 10 CA issuers (--mass: 3,000)",
    "kubernetes": "500 certificates: cert-manager and certwright on kube-apiserver, and certwright serve",
    "acme": "200 certificates from Pebble by HTTP-01 and by DNS-01, beside a bare client's time",
    "apiserver": "the API server beside kube-apiserver: rates, lists, watches, memory (five minutes)",
    "store": "the stores alone: commits, reads, lists",
    "startup": "cold start to ready, and memory of the idle process",
    "memory": "memory of 10,000 certificates, and a start over them (five minutes)",
    "servers": "certificates over several servers and shards on etcd, beside one server on SQLite",
    "dashboard": "the first page with 1,000 and 100,000 certificates, changes, issuance beside open pages",
    "delivery": "from the Secret to the served certificate: 100 renewals with eight servers (three minutes)",
}


def main() -> int:
    """Run what the arguments name; options go to the benchmark before them. 2 for an unknown name."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    unknown = [word for word in names if word not in BENCHMARKS]
    if unknown or (options and len(names) != 1):
        for name, text in BENCHMARKS.items():
            print(f"{name:11} {text}")
        if unknown:
            print(f"error: no benchmark is called {', '.join(unknown)}", file=sys.stderr)
        return 2 if unknown else 0
    for name in names or BENCHMARKS:
        print(f"\n## {name}: {BENCHMARKS[name]}\n", flush=True)
        importlib.import_module(f"bench.{name}").main(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
