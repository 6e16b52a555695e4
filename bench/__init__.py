"""The workloads behind every figure of the README. `make bench` runs all; `make bench ARGS=startup` one."""
