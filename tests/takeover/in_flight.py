"""Stages of a renewal by cert-manager, each as what there is when its process ends in the middle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.world import START
from takeover import fleet
from takeover.go_x509 import Key, key_pem, new_key
from takeover.objects import Issued, Json, approved, condition, issued, owner, pending, secret

NEXT = "web-x7k2p"
RENEWING = "Renewing certificate as renewal was scheduled at 2025-12-22 00:00:00 +0000 UTC"


@dataclass(frozen=True)
class Renewal:
    """The certificate that is there, and the one that is to come."""

    old: Issued
    new: Issued

    @property
    def next_key(self) -> Json:
        """The Secret with the next key: PKCS#8, whatever the spec's encoding."""
        labels = {"cert-manager.io/next-private-key": "true", "controller.cert-manager.io/fao": "true"}
        return secret(
            NEXT,
            {"tls.key": key_pem(self.new.key, "PKCS8")},
            labels=labels,
            generateName="web-",
            ownerReferences=[owner("Certificate", "web")],
        )

    def certificate(self, **status: Any) -> Json:
        """The Certificate while it is renewed."""
        return self.old.certificate(
            condition("Issuing", "True", "Renewing", RENEWING, generation=1), **status
        )

    def request(self, *conditions: Json) -> Json:
        """The request for the next revision."""
        made = self.new.request(*(conditions or (approved(),)), revision=2)
        return made if conditions else made | {"status": {}}


def renewal(key: Key | None = None) -> Renewal:
    """One that began a moment ago."""
    old = Issued("web", fleet.CA, fleet.WEB, begin=START - timedelta(days=70))
    return Renewal(old, Issued("web", fleet.CA, fleet.WEB, key=key or new_key(), begin=START))


def _noted(case: Renewal) -> Json:
    return case.certificate(nextPrivateKeySecretName=NEXT)


def _finished(case: Renewal) -> Json:
    return case.new.certificate(nextPrivateKeySecretName=NEXT, revision=2)


def _going(r: Renewal, *more: Json) -> list[Json]:
    """The next key is noted in the Certificate; what else there is."""
    return [_noted(r), r.old.secret(), r.old.request(), r.next_key, *more]


NOT_READY = "Referenced issuer does not have a Ready status condition"
STAGES: dict[str, tuple[Callable[[Renewal], list[Json]], int, int]] = {
    "it is to be renewed": (lambda r: [r.certificate(), r.old.secret(), r.old.request()], 1, 1),
    "the key is made": (lambda r: [r.certificate(), r.old.secret(), r.old.request(), r.next_key], 0, 1),
    "the key is noted": (_going, 0, 1),
    "it is asked for": (lambda r: _going(r, r.request()), 0, 0),
    "it is approved": (lambda r: _going(r, r.request(approved())), 0, 0),
    "the issuer was not ready": (lambda r: _going(r, r.request(approved(), pending(NOT_READY))), 0, 0),
    "it is signed": (lambda r: _going(r, r.request(approved(), issued())), 0, 0),
    "it is stored": (
        lambda r: [_noted(r), r.new.secret(), r.old.request(), r.next_key, r.request(approved(), issued())],
        0,
        0,
    ),
    "the next key is not yet deleted": (
        lambda r: [_finished(r), r.new.secret(), r.next_key, r.request(approved(), issued())],
        0,
        0,
    ),
}
"""What there is, and how many Secrets and requests are still to be made."""
