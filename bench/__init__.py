"""The workloads behind every figure of the README. `make bench` runs all; `make bench ARGS=startup` one."""

import sys
from pathlib import Path

# The real neighbours (etcd, Pebble, BIND) are started by what starts them for the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
