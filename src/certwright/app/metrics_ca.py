"""A CA in a Secret, which signs the certificate of the metrics endpoint.

The Secret is as cert-manager's: `tls.crt` and `ca.crt` are the CA, `tls.key` its key, and CAs may be injected
from it. All replicas use one CA; each has its own certificate, which is not stored. The CA is replaced, with
its key, when a third of its lifetime is left.

Source: cert-manager `pkg/server/tls/authority` (content, lifetimes, when it is replaced).
"""

from __future__ import annotations

import base64
import logging
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from certwright.kit import logs
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import AlreadyExists, Conflict, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.util.encoding import is_ip_address
from certwright.pki import keys
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyAlgorithm, KeyEncoding, KeyPlan, PrivateKey
from certwright.pki.renewal import renewal_time
from certwright.pki.signing import self_sign, sign
from certwright.resources import names

LEAF_LIFE: Final = timedelta(days=7)
CA_LIFE: Final = timedelta(days=365)
_CA_NAME: Final = "certwright metrics"
_FIELD_MANAGER: Final = "certwright-metrics-ca"
_PLAN: Final = KeyPlan(KeyAlgorithm.ECDSA, 256)
_log = logging.getLogger(__name__)


class CaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The Secret of the CA, and the DNS names (or addresses) and lifetime of the certificate."""

    secret: ObjectKey
    dns_names: tuple[str, ...]
    leaf_life: timedelta = LEAF_LIFE


class _Ca(msgspec.Struct, frozen=True):
    facts: CertificateFacts
    key: PrivateKey


class SecretCa:
    """Signs with the CA in the Secret, which is created if it is missing."""

    def __init__(self, client: Client, settings: CaSettings) -> None:
        self._client = client
        self._settings = settings
        self._signer = b""
        self._leaf = b""
        self._facts: CertificateFacts | None = None

    async def pem(self, now: datetime) -> bytes:
        """See `Source`."""
        ca = await self._current(now)
        facts = self._facts
        # One that begins later was issued by a clock that was ahead.
        if self._signer != ca.facts.pem or facts is None or not facts.not_before <= now < _renew_at(facts):
            self._leaf, self._facts = _leaf(ca, self._settings, now)
            self._signer = ca.facts.pem
        return self._leaf

    async def _current(self, now: datetime) -> _Ca:
        """The CA in the Secret, created or replaced if need be."""
        where = self._settings.secret
        try:
            secret = await self._client.get(SECRETS, where.name, where.namespace)
            ca = _ca_in(secret)
            # What has been put there for another purpose is never replaced.
            is_ours = (
                not secret.data or secret.metadata.annotations.get(names.ALLOW_DIRECT_INJECTION) == "true"
            )
            if ca is not None and _is_usable(ca.facts, now, is_ours=is_ours):
                return ca
            if not is_ours:
                raise ValueError(
                    f"Secret {where} exists and holds no CA that is valid now; name another one with "
                    "--metrics-dynamic-serving-ca-secret-name"
                )
            configuration = _configuration(secret, _new_ca(now))
            made = await self._client.apply(SECRETS, configuration, field_manager=_FIELD_MANAGER, force=True)
        except NotFound:
            annotations = {names.ALLOW_DIRECT_INJECTION: "true"}
            meta = SecretMeta(name=where.name, namespace=where.namespace, annotations=annotations)
            try:
                made = await self._client.create(
                    SECRETS, Secret(metadata=meta, type="Opaque", data=_new_ca(now))
                )
            except AlreadyExists:  # another replica
                made = await self._client.get(SECRETS, where.name, where.namespace)
        except Conflict:  # another replica
            made = await self._client.get(SECRETS, where.name, where.namespace)
        ca = _ca_in(made)
        if ca is None:
            raise ValueError(f"Secret {where} holds no CA")
        logs.event(
            _log,
            logging.INFO,
            "the CA of the metrics endpoint was issued",
            subject="server",
            secret=str(where),
            notAfter=ca.facts.not_after,
        )
        return ca


def _is_usable(ca: CertificateFacts, now: datetime, *, is_ours: bool) -> bool:
    """Whether it signs now. A CA of the operator's own is used to its end."""
    return ca.not_before <= now < (_renew_at(ca) if is_ours else ca.not_after)


def _ca_in(secret: Secret) -> _Ca | None:
    """The CA in the Secret; None if it holds none."""
    data = secret.data
    certificate = data.get(names.TLS_CERT_KEY, b"")
    if certificate != data.get(names.CA_CERT_KEY):
        return None
    try:
        key = keys.load_private_key(data.get(names.TLS_PRIVATE_KEY_KEY, b""))
        ca = _Ca(read_certificate(certificate), key)
    except PkiError:
        return None
    return ca if ca.facts.may_sign and keys.public_key_der(ca.key) == ca.facts.public_key_der else None


def _configuration(secret: Secret, data: dict[str, bytes]) -> dict[str, Any]:
    """The Secret with another CA, unless it has been changed since it was read."""
    meta = secret.metadata
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "resourceVersion": meta.resource_version,
            "annotations": {names.ALLOW_DIRECT_INJECTION: "true"},
        },
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def _new_ca(now: datetime) -> dict[str, bytes]:
    key = keys.generate(_PLAN)
    plan = CsrPlan(common_name=_CA_NAME, is_ca=True, usages=("digital signature", "cert sign"))
    pem = self_sign(build_csr(plan, key), key=key, duration=CA_LIFE, is_ca=True, usages=plan.usages, now=now)
    return {
        names.TLS_CERT_KEY: pem,
        names.CA_CERT_KEY: pem,
        names.TLS_PRIVATE_KEY_KEY: keys.encode_private_key(key, KeyEncoding.PKCS8),
    }


def _leaf(ca: _Ca, settings: CaSettings, now: datetime) -> tuple[bytes, CertificateFacts]:
    """A new certificate with its key, and what is in it."""
    dns_names = tuple(name for name in settings.dns_names if not is_ip_address(name))
    addresses = tuple(name for name in settings.dns_names if is_ip_address(name))
    key = keys.generate(_PLAN)
    plan = CsrPlan(dns_names=dns_names, ip_addresses=addresses, usages=("digital signature", "server auth"))
    pem = sign(
        build_csr(plan, key),
        ca_cert=ca.facts,
        ca_key=ca.key,
        duration=settings.leaf_life,
        is_ca=False,
        usages=plan.usages,
        now=now,
    )
    return pem + keys.encode_private_key(key, KeyEncoding.PKCS8), read_certificate(pem)


def _renew_at(facts: CertificateFacts) -> datetime:
    return renewal_time(facts.not_before, facts.not_after)
