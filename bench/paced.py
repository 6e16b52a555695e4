"""Controllers that take every API server for one without priority and fairness, so that `--kube-api-qps` and
`--kube-api-burst` hold. Ours has it and says so, which lifts the limit.

python -m bench.paced controllers --kubeconfig F --kube-api-qps 20 --kube-api-burst 50 --shards 2
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from certwright import app
from certwright.cli import access
from certwright.kube.client.transport import Transport
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.http_messages import Response

_FAIRNESS = "x-kubernetes-pf-"


class _Unfair:
    """A transport whose answers do not tell of priority and fairness."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The answer, less what would tell of it."""
        response = await self._inner.request(method, target, headers=headers, body=body)
        kept = {name: value for name, value in response.headers.items() if not name.startswith(_FAIRNESS)}
        return replace(response, headers=kept)

    async def close(self) -> None:
        """Close the transport behind it."""
        await self._inner.close()


async def _run(options: argparse.Namespace) -> None:
    choice = access.choose(options.kubeconfig, os.environ, Path.cwd())
    transport = _Unfair(access.connect(choice, access.load(choice, None)))
    cluster = app.ClusterSettings(
        identity=f"bench-{os.getpid()}",
        kube_api_qps=options.kube_api_qps,
        kube_api_burst=options.kube_api_burst,
        shards=options.shards,
        leader_elect=options.shards > 1,
        terms=app.Terms(retry_period=parse_duration(options.leader_election_retry_period)),
    )
    given = app.ControllerOptions(feature_gates=options.feature_gates)
    running = await app.start_controllers(transport, given, cluster=cluster)
    raise await running.wait_failed()


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("controllers",))
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--kube-api-qps", type=float, required=True)
    parser.add_argument("--kube-api-burst", type=int, default=50)
    parser.add_argument("--feature-gates", default="")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--leader-elect", choices=("false",), help="as it is with one shard")
    parser.add_argument("--leader-election-retry-period", default="15s")
    app.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
