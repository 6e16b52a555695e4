"""Temporary certificates, for Certificates whose annotation asks for one: servers that do not start without a
pair can start while the issuer takes its time.

Source: cert-manager `pkg/controller/certificates/issuing/temporary.go`.
"""

from __future__ import annotations

from typing import Final

from certwright.controllers.certificates import rules
from certwright.controllers.certificates.draft import Blocked
from certwright.controllers.certificates.effects import Effects
from certwright.controllers.certificates.snapshot import Rule, Snapshot
from certwright.controllers.certificates.target import Pair
from certwright.issuers.csr_plan import csr_plan
from certwright.pki import signing
from certwright.pki.errors import PkiError
from certwright.resources import names

ISSUED: Final = "Issued temporary certificate"

_NO_PAIR: tuple[Rule, ...] = (
    rules.secret_does_not_exist,
    rules.secret_is_missing_data,
    rules.key_pair_is_invalid,
)


def is_requested(snapshot: Snapshot) -> bool:
    """Whether one is asked for, and the Secret has no pair that could be served."""
    notes = snapshot.certificate.metadata.annotations
    return (
        notes.get(names.ISSUE_TEMPORARY_CERTIFICATE) == "true"
        and rules.first(_NO_PAIR, snapshot) is not None
        and rules.secret_is_not_ours(snapshot) is None
    )


async def make(snapshot: Snapshot, effects: Effects) -> Pair:
    """A temporary certificate for the next key. The snapshot must have `next_key`.

    Raises `Blocked` where the spec asks for what no certificate can contain.
    """
    certificate, key = snapshot.certificate, snapshot.next_key
    spec, namespace = certificate.spec, certificate.metadata.namespace
    assert key is not None
    try:
        csr = await effects.new_csr(signing.marked(csr_plan(spec)), key, namespace)
        chain = signing.sign_temporarily(
            csr,
            duration=spec.requested_duration,
            is_ca=spec.is_ca,
            usages=spec.usages,
            now=snapshot.now,
        )
    except PkiError as error:
        raise Blocked("RequestFailed", f"No temporary certificate can be made: {error}") from error
    return Pair(effects.encode_key(key, spec.key.encoding_or_default), chain, b"")
