"""Types that are known before threads convert to them."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_threads_that_convert_to_a_known_type_at_once_do_not_end_the_process() -> None:
    """Of three processes in which it is not known, two or three die of a segmentation fault."""
    script = """
        import sys, threading
        import msgspec
        from certwright.kit.known import known

        sys.setswitchinterval(1e-6)
        for _ in range(500):
            leaf = msgspec.defstruct("Leaf", [("a", int, 0), ("b", list[str], [])])
            branch = msgspec.defstruct("Branch", [("leaf", leaf), ("leaves", list[leaf], [])])
            tree = known(msgspec.defstruct("Tree", [("one", branch), ("more", dict[str, branch], {})]))
            leaves = {"leaf": {"a": 1}, "leaves": [{"a": 2}]}
            work = lambda: msgspec.convert({"one": leaves, "more": {"x": leaves}}, tree)
            threads = [threading.Thread(target=work) for _ in range(3)]
            [one.start() for one in threads], [one.join() for one in threads]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
