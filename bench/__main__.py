"""Run the benchmarks by name, or all of them.

make bench                        every one
make bench ARGS="certificates"    one
make bench ARGS="apiserver --only rates"   one, with options of its own (see its --help)
make bench ARGS=--list            their names
"""

from __future__ import annotations

import importlib
import itertools
import sys

BENCHMARKS = {
    "startup": "cold start to ready, and memory of the idle process",
    "certificates": "writes per certificate; 500 certificates from 10 CA issuers; one alone",
    "acme": "200 certificates from Pebble by HTTP-01 and by DNS-01, beside a bare client's time",
    "vault": "200 certificates from OpenBao, beside a bare client's time; requests and writes",
    "dns": "requests of each DNS provider for 1, 20 and 200 names, look-ups of zones, memory",
    "ingress": "1,000 annotated Ingresses beside Certificates by hand, and beside 10,000 idle Ingresses",
    "routes": "HTTP-01 for 200 annotated Ingresses through Traefik, beside a bare client",
    "cainjector": "memory beside 30,000 Secrets and 500 CRDs, with and without CA injection (five minutes)",
    "dead_names": "10,000 ACME orders for dead names waiting: how soon a live one is done",
    "scale": "cost per certificate at 500, 5,000 and 50,000; a daemon that has them all (ten minutes)",
    "apiserver": "our API server beside kube-apiserver: rates, lists, watches, memory (five minutes)",
    "kubernetes": "500 certificates by cert-manager and by ours on kube-apiserver, and by ours alone",
    "https": "creates and gets of 2 KB Secrets over loopback TLS, durable",
    "generate_name": "retries of generated names: what they cost, and how likely a conflict is (KEP-4420)",
    "workloads": "unrelated Secrets, 500 from 10 CAs, 100,000 certificates: memory and requests (an hour)",
    "limits": "5,000 certificates from a CA with Let's Encrypt's limits: time against the least, 429s",
    "fleet": "a year of 100,000 certificates whose issuers fail now and then, under three backoffs",
    "year": "a year at 1,000,000 certificates: writes, peaks, outages, memory of a shard (ten minutes)",
    "store": "the store alone: commits, reads, lists",
    "scaled": "certificates over several servers and shards on etcd, beside one server on SQLite",
    "failover": "how long certificates wait when a server, etcd's leader or a shard fails (ten minutes)",
    "paused": "what a shard writes that stood still for longer than its Lease lasts (six minutes)",
    "move": "a store of 100,000 certificates from SQLite to etcd and back: time (ten minutes)",
    "etcd_rows": "size of a certificate on etcd, plain and compressed; cost of compression",
    "etcd_capacity": "etcd's database and memory with 50,000 certificates that are renewed (ten minutes)",
    "delivery": "from issuance to served: 100 renewals with eight servers (three minutes)",
    "etcd_lists": "whole lists and pages of 500 on etcd, up to 100,000 objects: processor time",
}


def main() -> int:
    """Run what the arguments name; options go to the one named before them. 2 for a name that is none."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    unknown = [word for word in names if word not in BENCHMARKS]
    if unknown or (options and len(names) != 1):
        for name, text in BENCHMARKS.items():
            print(f"{name:14} {text}")
        if unknown:
            print(f"error: no benchmark is called {', '.join(unknown)}", file=sys.stderr)
        return 2 if unknown else 0
    for name in names or BENCHMARKS:
        print(f"\n## {name}: {BENCHMARKS[name]}\n", flush=True)
        main_of = importlib.import_module(f"bench.{name}").main
        main_of(options) if options else main_of()
    return 0


if __name__ == "__main__":
    sys.exit(main())
