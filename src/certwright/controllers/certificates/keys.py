"""Make the private key of the issuance in progress, in a separate Secret that is deleted afterwards.

Wakes on:  Issuing=True; next-key Secrets; the target Secret (for rotationPolicy Never)
Reads:     snapshot
Writes:    Certificate.status.nextPrivateKeySecretName, then the Secret of that name
Next:      requests

The name is written BEFORE the Secret: a crash between the two leaves a name without a Secret, which the next
start fills, and never a key without a reference.
"""

from __future__ import annotations

from certwright.controllers.cache.indexes import next_key_name
from certwright.controllers.certificates import desired
from certwright.controllers.certificates.draft import Blocked, Draft
from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.parsed import KeyFacts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import controller_of, is_controlled_by
from certwright.kube.api.naming import check_name
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import Certificate
from certwright.resources.operator_policy import OperatorPolicy, certificate_violations
from certwright.resources.table import CERTIFICATES


class Keys:
    """The step that keeps exactly one next-key Secret while issuing, and none otherwise; `policy` is the
    operator's."""

    def __init__(self, policy: OperatorPolicy) -> None:
        self._policy = policy

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Choose the name of the next-key Secret, or clear it when there is no issuance."""
        name = snapshot.certificate.status.next_private_key_secret_name
        named = snapshot.named_key
        if named is not None and is_without_owner(named):
            # The name stays until `act` has deleted the Secret, because nothing else finds the Secret.
            return
        if not snapshot.is_issuing:
            if name is not None:
                draft.change(next_private_key_secret_name=None)
            return
        taken = named is not None and not snapshot.owns_key(named)
        if not name or taken or check_name(name) is not None:  # A name that no Secret can have.
            draft.change(next_private_key_secret_name=self._choose(snapshot))

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Create the next-key Secret, or delete one that is not needed or not as desired."""
        name = snapshot.certificate.status.next_private_key_secret_name
        named = snapshot.named_key
        if named is not None and is_without_owner(named):
            await effects.delete_secret(named)
            return Did.WROTE
        if not snapshot.is_issuing or not name:
            return await self._delete_others("", snapshot, effects)
        if named is not None and snapshot.owns_key(named) and await effects.restore_label(named):
            return Did.WROTE
        if snapshot.next_key is not None:
            return await self._delete_others(name, snapshot, effects)
        if named is not None and snapshot.owns_key(named):
            # Unreadable, or the spec wants another kind of key by now.
            await effects.delete_secret(named)
            return Did.WROTE
        if named is not None:
            return Did.NOTHING
        if violations := certificate_violations(snapshot.certificate.spec, self._policy):
            raise Blocked("NotAllowed", str(violations[0]))
        # A stale copy may show an issuance that is over, or a Certificate that is deleted.
        if not snapshot.is_fresh and not await effects.is_current(snapshot.certificate):
            return Did.WROTE
        is_made = await effects.create_next_key(snapshot.certificate, await _make(name, snapshot, effects))
        return Did.HANDED_ON if is_made and not snapshot.next_keys else Did.WROTE

    def _choose(self, snapshot: Snapshot) -> str:
        if len(snapshot.next_keys) == 1 and not _is_used(snapshot.next_keys[0], snapshot):
            # Made by an earlier cert-manager, which writes the Secret first: take it over.
            return snapshot.next_keys[0].metadata.name
        return next_key_name(snapshot.certificate.metadata.name, snapshot.suffix)

    async def _delete_others(self, name: str, snapshot: Snapshot, effects: Effects) -> Did:
        others = [secret for secret in snapshot.next_keys if secret.metadata.name != name]
        for secret in others:
            await effects.delete_secret(secret)
        return Did.CLEARED if others else Did.NOTHING


def _is_used(secret: Secret, snapshot: Snapshot) -> bool:
    """Whether it is left over from the issuance of the present certificate, and its key is not new."""
    key, leaf = snapshot.facts.key(secret.data.get(names.TLS_PRIVATE_KEY_KEY, b"")), snapshot.leaf
    if not isinstance(key, KeyFacts) or not isinstance(leaf, CertificateFacts):
        return False
    return key.public == leaf.public_key_der


async def _make(name: str, snapshot: Snapshot, effects: Effects) -> Secret:
    certificate = snapshot.certificate
    kept = kept_key(snapshot)
    if isinstance(kept, str):
        secret = certificate.spec.secret_name
        text = f'The private key in Secret "{secret}" cannot be read, so a new one is generated: {kept}'
        effects.send_event(certificate, "Warning", "DecodeFailed", text)
        kept = None
    if kept is None:
        plan = desired.key_plan(certificate.spec.key)
        return next_key_secret(certificate, name, await effects.new_key(plan, certificate))
    if differing := desired.key_differences(kept, certificate.spec):
        raise Blocked(
            "CannotRegenerateKey",
            f'The private key in Secret "{certificate.spec.secret_name}" is not as the spec wants it '
            f"({', '.join(differing)}), and spec.privateKey.rotationPolicy Never forbids replacing it; set "
            "rotationPolicy to Always, or delete the Secret",
        )
    return next_key_secret(certificate, name, snapshot.facts.encode(kept, "PKCS8"))


def kept_key(snapshot: Snapshot) -> KeyFacts | str | None:
    """The key of the target Secret where the spec asks to keep it, or why it cannot be read; None: no key."""
    if snapshot.certificate.spec.key.rotation_policy_or_default != "Never":
        return None
    pem = snapshot.secret.data.get(names.TLS_PRIVATE_KEY_KEY) if snapshot.secret else None
    return snapshot.key if pem else None


def is_named_key(secret: Secret, owner_uid: str) -> bool:
    """Whether the Secret named in the status of the Certificate with that UID is its next-key Secret,
    whatever its labels: admission webhooks may remove them. A Secret with a certificate is a target
    Secret."""
    return is_controlled_by(secret.metadata, owner_uid) and names.TLS_CERT_KEY not in secret.data


def is_without_owner(secret: Secret) -> bool:
    """Whether that is a next-key Secret whose owner reference was removed before we could delete it."""
    meta = secret.metadata
    is_marked = meta.labels.get(names.NEXT_PRIVATE_KEY_LABEL) == "true"
    return is_marked and controller_of(meta) is None and names.TLS_CERT_KEY not in secret.data


def next_key_secret(certificate: Certificate, name: str, pem: bytes) -> Secret:
    """The Secret with the key of the issuance in progress."""
    meta = SecretMeta(
        name=name,
        namespace=certificate.metadata.namespace,
        labels={names.NEXT_PRIVATE_KEY_LABEL: "true", names.FAO_LABEL: "true"},
        owner_references=(controller_reference(CERTIFICATES, certificate.metadata),),
    )
    return Secret(metadata=meta, type="Opaque", data={names.TLS_PRIVATE_KEY_KEY: pem})
