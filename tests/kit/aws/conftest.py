from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from certwright.kit.aws.service import AwsTools
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from support.ministack import Aws, running_ministack


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with running_ministack() as running:
        yield running


@pytest.fixture
async def tools() -> AsyncIterator[AwsTools]:
    """HTTPS clients as in the product, and the system's time."""
    clients: dict[ServerRules, HttpsClient] = {}

    def client(rules: ServerRules) -> HttpClient:
        if rules not in clients:
            clients[rules] = HttpsClient(ServerTls(), user_agent="certwright", trust_fix="", rules=rules)
        return clients[rules]

    yield AwsTools(client, lambda: datetime.now(UTC))
    for http_client in clients.values():
        await http_client.close()
