"""What a certificate from Vault costs: time beside a bare client's, requests to the server, writes, events.

The server is a real OpenBao (`make servers`). The bare client makes a key and a signing request for each
certificate and sends the same `sign` calls, with one login and as many connections; it stores nothing. Both
take turns: with RSA keys of 2048 bits, the default of Certificates, and with ECDSA keys.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.certificates import Bench, cpu_s, ready, running
from bench.rig import table
from certwright.kit.https import HttpsClient
from certwright.kit.outgoing import ServerTls
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.pki import csr, keys
from certwright.resources.table import CERTIFICATES, ISSUERS
from support.openbao import Bao, app_role, openbao

NUMBER = 200
ROUNDS = 3
ALGORITHMS = ("RSA", "ECDSA")
_SIGN, _LOGIN = "pki/sign/web", "auth/approle/login"


class Took(NamedTuple):
    """Seconds of wall, and of this process's processor."""

    wall_s: float
    cpu_s: float


async def floor(bao: Bao, algorithm: str, names: Sequence[str]) -> Took:
    """What the bare client needs."""
    role, secret = app_role(bao)
    client = HttpsClient(ServerTls(ca_pem=bao.ca_pem), user_agent="bench", trust_fix="")
    begun, spent = time.perf_counter(), cpu_s()
    try:
        login = await _post(client, bao, _LOGIN, {"role_id": role, "secret_id": secret})
        token = login["auth"]["client_token"]

        async def obtain(name: str) -> None:
            await _sign(client, bao, token, name, await asyncio.to_thread(_request, algorithm, name))

        await asyncio.gather(*map(obtain, names))
        return Took(time.perf_counter() - begun, cpu_s() - spent)
    finally:
        await client.close()


def _request(algorithm: str, name: str) -> bytes:
    return csr.build_csr(csr.CsrPlan(dns_names=(name,)), keys.generate(keys.KeyPlan.of(algorithm)))


async def _sign(client: HttpsClient, bao: Bao, token: str, name: str, request: bytes) -> None:
    body = {
        "common_name": "",
        "alt_names": name,
        "ip_sans": "",
        "uri_sans": "",
        "ttl": "7776000s",
        "csr": request.decode(),
        "exclude_cn_from_sans": "true",
    }
    answer = await _post(client, bao, _SIGN, body, token)
    assert answer["data"]["certificate"]


async def _post(client: HttpsClient, bao: Bao, path: str, body: dict[str, Any], token: str = "") -> Any:
    headers = (("X-Vault-Token", token),) if token else ()
    answer = await client.send(
        "POST", f"{bao.url}/v1/{path}", body=json.dumps(body).encode(), headers=headers
    )
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


async def make_issuer(bench: Bench, bao: Bao) -> None:
    """The Issuer `vault`, Ready."""
    role, secret = app_role(bao)
    meta = SecretMeta(name="app-role", namespace="default")
    await bench.client.create(SECRETS, Secret(metadata=meta, data={"secretId": secret.encode()}))
    ref = {"name": "app-role", "key": "secretId"}
    spec = {
        "server": bao.url,
        "path": _SIGN,
        "caBundle": base64.b64encode(bao.ca_pem).decode(),
        "auth": {"appRole": {"path": "approle", "roleId": role, "secretRef": ref}},
    }
    version = (await bench.client.list(ISSUERS)).resource_version
    await bench.create(ISSUERS, "vault", {"vault": spec})
    async with asyncio.timeout(30):
        async for batch in bench.client.watch(ISSUERS, "default", resource_version=version):
            if any(conditions.is_true(event.object.status.conditions, "Ready") for event in batch):
                return


async def ours(bench: Bench, algorithm: str, names: Sequence[str]) -> Took:
    """From the first apply to the last Ready."""
    spent = cpu_s()

    async def begin() -> None:
        await asyncio.gather(*(_apply(bench, algorithm, name) for name in names))

    prefix = names[0].split("-")[0]
    wall = await ready(bench, lambda name: name.startswith(f"{prefix}-"), len(names), begin)
    return Took(wall, cpu_s() - spent)


async def _apply(bench: Bench, algorithm: str, dns_name: str) -> None:
    name = dns_name.partition(".")[0]
    spec = {
        "secretName": name,
        "dnsNames": [dns_name],
        "privateKey": {"algorithm": algorithm},
        "issuerRef": {"name": "vault"},
    }
    await bench.create(CERTIFICATES, name, spec)


def names_for(label: str) -> list[str]:
    """Names that no other turn uses."""
    return [f"{label}-{n}.example.org" for n in range(NUMBER)]


async def measure(bao: Bao) -> list[list[str]]:
    """The rows of the table."""
    rows: list[list[str]] = []
    async with running() as bench:
        everything = bao.count("")
        await make_issuer(bench, bao)
        for algorithm in ALGORITHMS:
            rows += await compared(bench, bao, algorithm)
            if algorithm == ALGORITHMS[0]:
                logins, signed = bao.count(_LOGIN) - ROUNDS, bao.count(_SIGN) - ROUNDS * NUMBER
                # The bare client's, and what makes the secret IDs (`app_role`, two requests).
                not_ours = ROUNDS * (NUMBER + 1) + 2 * (ROUNDS + 1)
                others = bao.count("") - everything - not_ours - logins - signed
                of_what = f"{logins} login, {signed} sign calls, {others} for the check of the issuer"
                rows.append([f"requests of certwright for {ROUNDS * NUMBER}", of_what])
    return rows


async def compared(bench: Bench, bao: Bao, algorithm: str) -> list[list[str]]:
    """Rows for one algorithm of keys: the best of each counts."""
    floors, turns, written = [], [], Counter[str]()
    for turn in range(ROUNDS):
        before = bench.counted.counts.copy()
        label = f"{algorithm.lower()}{turn}"
        turns.append(await ours(bench, algorithm, names_for(label)))
        await asyncio.sleep(1)  # what follows Ready is counted too: the clean-up, the events
        written += bench.counted.counts - before
        floors.append(await floor(bao, algorithm, names_for(f"bare-{label}")))
    wall, bare = min(took.wall_s for took in turns), min(took.wall_s for took in floors)
    cpu, bare_cpu = (1_000 * min(took.cpu_s for took in runs) / NUMBER for runs in (turns, floors))
    made = ROUNDS * NUMBER
    return [
        [f"{algorithm}: {NUMBER} at once, apply to the last Ready", f"{wall:.2f} s ({_walls(turns)})"],
        [f"{algorithm}: the bare client", f"{bare:.2f} s ({_walls(floors)})"],
        [f"{algorithm}: ratio", f"{wall / bare:.2f}"],
        [f"{algorithm}: processor each, ours and the bare client's", f"{cpu:.1f} ms, {bare_cpu:.1f} ms"],
        *([f"{algorithm}: {what} each", f"{written[what] / made:.2f}"] for what in sorted(written)),
    ]


def _walls(runs: Sequence[Took]) -> str:
    return ", ".join(f"{took.wall_s:.2f}" for took in runs)


def main() -> None:
    """Measure and print."""
    with openbao() as bao:
        rows = asyncio.run(measure(bao))
    table(["what", "figure"], rows)
