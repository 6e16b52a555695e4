"""The workloads behind the figures of docs/figures.md: `make bench` runs all, `make bench ARGS=store` one."""

import sys
from pathlib import Path

# The real neighbours (etcd, Pebble, BIND) are started by what starts them for the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
