"""Stores that hold many objects already: written into the SQLite file, while no server has it open.

What a certificate leaves behind (Certificate, CertificateRequest, Secret) is issued once for each issuer in
the way that users have it issued. The others are copies, with names, UIDs, keys and certificates
of their own.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from base64 import b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path

from bench.certificates import CA_ISSUERS, make_certificate, make_issuers, ready, running
from bench.rig import daemon
from certwright import app
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.store.sqlite.file import SELECT_REVISION
from certwright.pki import csr, keys, signing
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES

ALGORITHM = "ECDSA"
# The rows are written past the server, so that it must not expect them sealed.
IN_CLEAR = ("--encrypt-secrets", "false")
# RSA keys take long to make, so that copies share them: so many that hardly any two are looked at together.
_RSA_KEYS = 256
LIFETIME = timedelta(days=90)
# In the last third of their lifetime.
AGE_OF_THE_DUE = timedelta(days=61)
_AT_ONCE = 500
_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)"
_REVISION = "UPDATE rows SET revision = ? WHERE bucket = '' AND namespace = '' AND name = ''"

Rows = list[tuple[str, str, bytes, bytes]]
"""Bucket, name, and the two parts of the object, which say `REVISION` where its revision is to stand."""
REVISION = b"@revision@"


@dataclass(frozen=True, slots=True)
class Seed:
    """One certificate that was really issued: its rows, and what is in them that each copy has of its own."""

    name: str
    rows: Rows
    uids: tuple[bytes, ...]
    key: bytes
    request: bytes
    chain: bytes
    ca_cert: bytes
    ca_key: bytes
    renewal: str

    @property
    def leaf(self) -> CertificateFacts:
        """Its certificate."""
        return read_certificate(self.chain)


def stock(folder: Path, certificates: int, *, due: float = 0.0, algorithm: str = ALGORITHM) -> None:
    """Fill `folder` with what a daemon had that issued so many certificates; that part of them is `due` for
    renewal. The keys are of that algorithm (of `spec.privateKey.algorithm`). Without any there are the
    issuers, and a certificate from each."""
    with daemon(*IN_CLEAR, data_dir=folder):
        pass  # It makes its own authority, and what every store holds.
    seeds = app.run(_seeds(folder, algorithm))
    copies = [(n, due > 0 and n % round(1 / due) == 0) for n in range(certificates)]
    pieces = [copies[at : at + _AT_ONCE] for at in range(0, certificates, _AT_ONCE)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        insert(folder, (row for rows in pool.map(partial(_copies, seeds, algorithm), pieces) for row in rows))


def insert(folder: Path, rows: Iterable[tuple[str, str, bytes, bytes]]) -> None:
    """Write rows, each with a revision of its own."""
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as connection:
        (revision,) = connection.execute(SELECT_REVISION).fetchone()
        connection.execute("BEGIN")
        for bucket, name, meta, body in rows:
            revision += 1
            meta = meta.replace(REVISION, b"%d" % revision)
            connection.execute(_INSERT, (bucket, "default", name, revision, meta, body))
        connection.execute(_REVISION, (revision,))
        connection.execute("COMMIT")


def unrelated_secrets(number: int, size: int) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Secrets of about that size in bytes that have nothing to do with certificates, as Helm writes them."""
    for n in range(number):
        name = f"sh.helm.release.v1.app-{n}.v1"
        meta = (
            b'{"name":"%b","namespace":"default","uid":"%b","creationTimestamp":"2026-01-01T00:00:00Z",'
            b'"resourceVersion":"%b","labels":{"owner":"helm","name":"app-%d","version":"1"}}'
        )
        payload = b64encode(os.urandom(size * 3 // 4))
        body = b'\n"type":"helm.sh/release.v1","data":{"release":"%b"}' % payload
        yield "secrets", name, meta % (name.encode(), _uid(), REVISION, n), body


async def _seeds(folder: Path, algorithm: str) -> list[Seed]:
    names = [f"template-{n}" for n in range(CA_ISSUERS)]
    async with running(folder, encrypt_secrets=False) as bench:
        await make_issuers(bench)

        async def create() -> None:
            await asyncio.gather(
                *(make_certificate(bench, name, n, algorithm) for n, name in enumerate(names))
            )

        await ready(bench, lambda name: name in names, len(names), create)
        await asyncio.sleep(1)
        templates = []
        for n, name in enumerate(names):
            certificate = await bench.client.get(CERTIFICATES, name, "default")
            request = await bench.client.get(CERTIFICATE_REQUESTS, f"{name}-1", "default")
            secret = await bench.client.get(SECRETS, name, "default")
            ca = await bench.client.get(SECRETS, f"ca-{n}", "default")
            templates.append((name, certificate, request, secret, ca))
    return [_seed(folder, *template) for template in templates]


def _seed(
    folder: Path, name: str, certificate: Certificate, request: CertificateRequest, secret: Secret, ca: Secret
) -> Seed:
    rows = []
    owned = (
        ("cert-manager.io/certificates", certificate),
        ("cert-manager.io/certificaterequests", request),
        ("secrets", secret),
    )
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        for bucket, obj in owned:
            query = "SELECT meta, body FROM rows WHERE bucket = ? AND namespace = 'default' AND name = ?"
            meta, body = connection.execute(query, (bucket, obj.metadata.name)).fetchone()
            version = b'"resourceVersion":"%b"'
            resource_version = obj.metadata.resource_version.encode()
            rows.append(
                (
                    bucket,
                    obj.metadata.name,
                    meta.replace(version % resource_version, version % REVISION),
                    body,
                )
            )
    renewal = certificate.status.renewal_time
    assert renewal is not None
    return Seed(
        name=name,
        rows=rows,
        uids=tuple(obj.metadata.uid.encode() for _, obj in owned),
        key=secret.data["tls.key"],
        request=request.spec.request,
        chain=request.status.certificate,
        ca_cert=ca.data["tls.crt"],
        ca_key=ca.data["tls.key"],
        renewal=_text(renewal),
    )


def _copies(seeds: list[Seed], algorithm: str, numbers: list[tuple[int, bool]]) -> Rows:
    """The rows of those copies; each says whether it is due for renewal."""
    made: Rows = []
    for n, is_due in numbers:
        key = _key(algorithm, n % _RSA_KEYS if algorithm == keys.KeyAlgorithm.RSA else n)
        made += _copy(seeds[n % len(seeds)], f"web-{n:06}", key, is_due=is_due)
    return made


@lru_cache(maxsize=_RSA_KEYS)
def _key(algorithm: str, _number: int) -> keys.PrivateKey:
    return keys.generate(keys.KeyPlan.of(algorithm))


def _copy(seed: Seed, name: str, key: keys.PrivateKey, *, is_due: bool) -> Rows:
    request = csr.build_csr(csr.CsrPlan(dns_names=(f"{name}.example.com",)), key)
    leaf, begin = seed.leaf, seed.leaf.not_before
    if is_due:
        begin -= AGE_OF_THE_DUE
    chain = signing.sign(
        request,
        ca_cert=read_certificate(seed.ca_cert),
        ca_key=keys.load_private_key(seed.ca_key),
        duration=LIFETIME,
        is_ca=False,
        usages=leaf.usages,
        now=begin,
    )
    exchanges = {
        seed.name.encode(): name.encode(),
        b64encode(seed.key): b64encode(keys.encode_private_key(key)),
        b64encode(seed.request): b64encode(request),
        b64encode(seed.chain): b64encode(chain),
    }
    exchanges |= {uid: _uid() for uid in seed.uids}
    if is_due:
        ends = read_certificate(chain).not_after
        exchanges[_quoted("notBefore", leaf.not_before)] = _quoted("notBefore", begin)
        exchanges[_quoted("notAfter", leaf.not_after)] = _quoted("notAfter", ends)
        exchanges[seed.renewal.encode()] = _text(ends - (ends - begin) / 3).encode()
    return [
        (bucket, own.replace(seed.name, name), _exchanged(meta, exchanges), _exchanged(body, exchanges))
        for bucket, own, meta, body in seed.rows
    ]


def _exchanged(text: bytes, exchanges: dict[bytes, bytes]) -> bytes:
    for old, new in exchanges.items():
        text = text.replace(old, new)
    return text


def _quoted(field: str, moment: datetime) -> bytes:
    return f'"{field}":"{_text(moment)}"'.encode()


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _uid() -> bytes:
    return str(uuid.uuid4()).encode()
