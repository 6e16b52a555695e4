"""The page of issuers and CAs: health, circuit breaker, rate limits, accounts; and the tree of CAs, whose
roots can be downloaded and installed.
"""

from __future__ import annotations

import asyncio
import io
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import segno

from certwright.dashboard.certificate import read_certificate
from certwright.dashboard.index import Row, Scope
from certwright.dashboard.overview import visible_rows
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import issuers, limits, related
from certwright.diagnosis.certificates import condition
from certwright.diagnosis.words import count
from certwright.kube.api.errors import ApiError, Forbidden, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.http_messages import Response
from certwright.pki import certificates
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.retry import BreakerRecord, read_breaker

Json = dict[str, Any]
_MOST: Final = 200
_DEEPEST: Final = 12
"""Levels of the tree of CAs."""
_MOST_CAS: Final = 500
_LEDGERS_IN: Final = "kube-system"


class Gauge(msgspec.Struct, frozen=True):
    """A rate limit: a share from 0 to 1 of it is used."""

    words: str
    share: float
    free_at: datetime | None


class IssuerView(msgspec.Struct, frozen=True):
    """An issuer on the page. `place` is its id there."""

    kind: str
    namespace: str
    name: str
    place: str
    type: str
    level: str
    cause: str
    advice: str
    breaker: BreakerRecord | None
    recent: int
    server: str
    account: str
    email: str
    number: int
    gauges: Sequence[Gauge]


class Authority(msgspec.Struct, frozen=True):
    """A CA of the index, the CAs that it has signed, and their number of certificates. `circle`: the CA that
    has signed it, if that CA is below."""

    row: Row
    issuers: Sequence[str]
    number: int
    below: Sequence[Authority]
    level: str
    circle: ObjectKey | None = None


def views_of(
    found: Sequence[Json], rows: Sequence[Row], used: Sequence[limits.Row], now: datetime
) -> list[IssuerView]:
    """The issuers, failing issuers first."""
    numbers = Counter(_reference(row) for row in rows)
    views = [_view(issuer, numbers, used, now) for issuer in found]
    return sorted(views, key=lambda view: (view.level == "ok", view.kind, view.namespace, view.name))


def _reference(row: Row) -> tuple[str, str]:
    """The name of a certificate's issuer on the page: kind, name and namespace."""
    return row.issuer, "" if row.issuer.startswith("ClusterIssuer/") else row.namespace


def _view(
    issuer: Json, numbers: Mapping[tuple[str, str], int], used: Sequence[limits.Row], now: datetime
) -> IssuerView:
    meta, spec = issuer["metadata"], issuer.get("spec") or {}
    kind, namespace, name = str(issuer["kind"]), str(meta.get("namespace", "")), str(meta["name"])
    status = issuers.status_of(issuer, (), ())
    cause, advice = issuers.story(status, now)
    acme = spec.get("acme") or {}
    own = limits.account_of(issuer)
    is_known = bool(condition(issuer, "Ready"))
    breaker = read_breaker(meta.get("annotations") or {})
    return IssuerView(
        kind,
        namespace,
        name,
        f"{kind}.{namespace}.{name}",
        ", ".join(sorted(map(str, spec))),
        "ok" if issuers.works(issuer) else "bad" if is_known else "busy",
        cause,
        advice,
        breaker,
        issuers.recent_attempts(breaker, now) if breaker is not None else 0,
        own.server,
        own.uri,
        str(acme.get("email", "")),
        numbers.get((f"{kind}/{name}", namespace), 0),
        [_gauge(row, now) for row in used if acme and limits.concerns(row, own)],
    )


def _gauge(row: limits.Row, now: datetime) -> Gauge:
    if row.is_learned:
        return Gauge(f"refused: {row.whose}", 1.0, row.free_at)
    words = f"{row.limit}: {row.used:,} of {row.rate.count:,} used"
    return Gauge(words, min(row.used / row.rate.count, 1.0), row.free_at if row.free_at > now else None)


def tree_of(found: Sequence[Json], rows: Sequence[Row]) -> tuple[list[Authority], int]:
    """The CAs that were issued here, each below the CA that has signed it, roots first; and the number of CAs
    beyond the first `_MOST_CAS`.

    Of CAs that have signed each other in a circle, one is shown as a root. Below `_DEEPEST` levels CAs are
    beside each other, because a tenant may make a chain of any length.
    """
    cas = [row for row in rows if row.is_ca]
    authorities = {(row.namespace, row.secret): row for row in reversed(cas)}
    by_name = {secret: row for (_, secret), row in authorities.items()}
    signers: dict[tuple[str, str], Row] = {}
    serving: dict[ObjectKey, list[str]] = {}
    for issuer in found:
        secret = str(((issuer.get("spec") or {}).get("ca") or {}).get("secretName", ""))
        place = str(issuer["metadata"].get("namespace", ""))
        # The Secrets of ClusterIssuers are in a namespace that only the controllers know.
        ca = authorities.get((place, secret)) if place else by_name.get(secret)
        if ca is not None:
            reference = f"{issuer['kind']}/{issuer['metadata']['name']}"
            signers[reference, place] = ca
            serving.setdefault(ca.key, []).append(f"{reference}{f' in {place}' if place else ''}")
    signed = Counter(
        signer.key for row in rows if not row.is_ca and (signer := signers.get(_reference(row))) is not None
    )
    parents = {row.key: signers.get(_reference(row)) for row in cas}
    cut = _in_circles(cas, parents)
    signed_by: dict[ObjectKey | None, list[Row]] = {}
    for row in cas:
        signer = parents[row.key]
        signed_by.setdefault(None if signer is None or row.key in cut else signer.key, []).append(row)
    # Roots first: the long chain of a tenant does not hide the CAs of others.
    shown = list(signed_by.get(None, ()))
    for row in shown:
        shown += signed_by.get(row.key, ())
    kept = {row.key for row in shown[:_MOST_CAS]}
    below = {key: [row for row in members if row.key in kept] for key, members in signed_by.items()}

    def branch(parent: ObjectKey | None, depth: int) -> list[Authority]:
        members = list(below.get(parent, ()))
        if is_deepest := depth == _DEEPEST:
            for row in members:
                members += below.get(row.key, ())
        return [authority(row, [] if is_deepest else branch(row.key, depth + 1)) for row in members]

    def authority(row: Row, members: Sequence[Authority]) -> Authority:
        signer = parents[row.key]
        circle = signer.key if signer is not None and row.key in cut and signer.key != row.key else None
        level = "ok" if row.is_valid else "bad"
        return Authority(row, serving.get(row.key, []), signed[row.key], members, level, circle)

    return branch(None, 1), len(cas) - len(kept)


def _in_circles(cas: Sequence[Row], parents: Mapping[ObjectKey, Row | None]) -> set[ObjectKey]:
    """One CA of each circle of CAs that have signed each other, also of a CA that has signed itself."""
    done, chosen = set[ObjectKey](), set[ObjectKey]()
    for row in cas:
        path = set[ObjectKey]()
        signer: Row | None = row
        while signer is not None and signer.key not in done and signer.key not in path:
            path.add(signer.key)
            signer = parents[signer.key]
        if signer is not None and signer.key in path:
            chosen.add(signer.key)
        done |= path
    return chosen


async def _limits(visit: Visit, found: Sequence[Json]) -> list[limits.Row]:
    """The limits in the controllers' ledgers; none where the user may not read them."""
    accounts = limits.accounts_of(found)
    if not accounts:
        return []
    try:
        label = f"{names.ACME_LIMITS_LABEL}=true"
        kept = (await visit.client.list(related.CONFIG_MAPS, _LEDGERS_IN, labels=label)).items
        used = [row for ledger in kept for row in limits.read(ledger, (), accounts, visit.now)]
    except (ApiError, limits.UnreadableLedger):
        return []
    return [row for row in used if row.is_notable]


async def page(visit: Visit) -> View:
    """The page of issuers and CAs. Raises `ApiError`."""
    await visit.index.wait_synced()
    scopes: dict[str, Scope] = {plural: await visit.scope(plural) for plural in ("issuers", "clusterissuers")}
    found = []
    for issuer in visit.index.issuers():
        kind = str(issuer["kind"])
        namespace, name = str(issuer["metadata"].get("namespace", "")), str(issuer["metadata"]["name"])
        if scopes[f"{kind.lower()}s"].allows(namespace, name):
            found.append(issuer)
    scope, used = await visit.scope("certificates"), await _limits(visit, found)

    def compute() -> tuple[list[IssuerView], list[Authority], int]:
        rows = visible_rows(visit.index, scope)
        return views_of(found, rows, used, visit.now), *tree_of(found, rows)

    # With 100,000 certificates this takes a tenth of a second.
    views, tree, more_cas = await asyncio.to_thread(compute)
    context = {
        "issuers": views[:_MOST],
        "more": max(len(views) - _MOST, 0),
        "summary": _summary(views),
        "tree": tree,
        "more_cas": more_cas,
    }
    return View("issuers.html", context, live=("summary", "issuers", "authorities"))


def _summary(views: Sequence[IssuerView]) -> str:
    failing = [view for view in views if view.level == "bad"]
    if not views:
        return "There are no issuers that you may see"
    if not failing:
        return "The one issuer works" if len(views) == 1 else f"All {len(views)} issuers work"
    named = ", ".join(f"{view.kind} {view.name}" for view in failing[:3])
    verb = "does" if len(failing) == 1 else "do"
    return f"{len(failing)} of {count(len(views), 'issuer')} {verb} not work: {named}"


async def _certificate_of_ca(visit: Visit) -> tuple[ObjectKey, str]:
    """The CA that the path names, and its certificate in PEM. Raises `ApiError`."""
    key, certificate = await read_certificate(visit)
    secret = str((certificate.get("spec") or {}).get("secretName", ""))
    try:
        stored = await visit.client.get(related.SECRETS, secret, key.namespace)
        first = certificates.read_chain(b64decode((stored.get("data") or {}).get("tls.crt", "")))[0]
    except Forbidden:
        raise Forbidden(f"you may not read the Secret of {key}, in which its certificate is") from None
    except (NotFound, PkiError, ValueError):
        raise NotFound(f"{key} has not been issued yet") from None
    if not first.is_ca:
        raise NotFound(f"{key} is no CA")
    return key, first.pem.decode()


async def root(visit: Visit) -> View:
    """The page of a CA to send to a colleague: its certificate, and how to install it. Raises `ApiError`."""
    key, pem = await _certificate_of_ca(visit)
    (facts,) = certificates.read_chain(pem.encode())
    install = f"sudo {visit.command} trust install --file {key.name}.crt"
    context = {
        "key": key,
        "subject": facts.subject_text,
        "fingerprint": facts.fingerprint.hex(":").upper(),
        "not_after": facts.not_after,
        "install": install,
        "qr": qr(install),
        "pem": pem,
    }
    return View("root.html", context)


async def root_file(visit: Visit) -> Response:
    """The certificate of a CA as a file. Raises `ApiError`."""
    key, pem = await _certificate_of_ca(visit)
    fields = {
        "content-type": "application/x-pem-file",
        "content-disposition": f'attachment; filename="{key.name}.crt"',
    }
    return Response(200, fields, pem.encode())


def qr(text: str) -> str:
    """A QR code of the text as SVG, without style attributes (ISO/IEC 18004)."""
    drawn = io.BytesIO()
    segno.make(text, micro=False).save(drawn, kind="svg", xmldecl=False, svgns=True, omitsize=True, border=2)
    return drawn.getvalue().decode()
