"""The informers of the controllers, and look-ups in their indexes (`indexes.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from certwright.controllers.cache import indexes, layouts, shard_filter
from certwright.controllers.cache.indexes import (
    is_finished,
    issued_revision,
    next_revision,
    owner_value,
    revision_number,
    secret_value,
)
from certwright.controllers.cache.issuer_sets import IssuerSets
from certwright.controllers.cache.secrets import Secrets
from certwright.controllers.cache.shard_filter import Mine, owning_certificate
from certwright.controllers.cache.transforms import is_complete, without_answer
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey, ObjectMeta, is_controlled_by
from certwright.kube.client.cache import revision_of
from certwright.kube.client.filtered_informer import PartialInformer, follow_some
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet
from certwright.resources import reasons
from certwright.resources.acme import Challenge, Order, OrderSpec
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer, read_member
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateSigningRequest
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    CHALLENGES,
    CLUSTER_ISSUERS,
    ISSUERS,
    ORDERS,
)


class Caches:
    """The informers for Certificates, their requests, issuers and Secrets, of one namespace or of all.

    With a namespace there are no ClusterIssuers and no CertificateSigningRequests (cert-manager's
    `--namespace`); the latter are only watched where `signing_requests` is set. The Secrets of ClusterIssuers
    lie in `cluster_resource_namespace`; `filtered_secrets`: see `secrets.py`. Of Certificates that are not
    `mine` (None: all are), and of what belongs to them, only what `shard_filter.py` selects is cached; but
    all issuers, Orders and Challenges are.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str = "",
        cluster_resource_namespace: str = "kube-system",
        signing_requests: bool = False,
        filtered_secrets: bool = True,
        mine: Mine | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._cluster_resource_namespace = cluster_resource_namespace
        self.certificates = self._follow_certificates(mine)
        self.requests = self._follow_requests(mine)
        by_secret = {indexes.BY_CA: indexes.ca_secrets, indexes.BY_REFERENCE: indexes.secrets_of_issuer}
        self.issuers: Informer[Issuer] = Informer(
            client, ISSUERS, clock, namespace=namespace, indexers=by_secret
        )
        self.cluster_issuers: Informer[ClusterIssuer] | None = (
            None if namespace else Informer(client, CLUSTER_ISSUERS, clock, indexers=by_secret)
        )
        self.sets = IssuerSets(client, clock, namespace=namespace)
        self.secrets = Secrets(
            client,
            clock,
            keep=shard_filter.keep_secrets(mine) if mine else None,
            namespace=namespace,
            owner_of=indexes.owners_of_next_key,
            packing=layouts.secrets(self._is_only_served),
            is_filtered=filtered_secrets,
        )
        self.secrets.add_use(self._refers_to)
        self.orders = self._follow_orders()
        self.challenges: Informer[Challenge] = Informer(
            client,
            CHALLENGES,
            clock,
            namespace=namespace,
            indexers={indexes.BY_OWNER: indexes.owner_uids, indexes.BY_ISSUER: indexes.open_issuers},
        )
        self._others: list[Informer[Any]] = []
        self.signing_requests: Informer[CertificateSigningRequest] | None = None
        if signing_requests and not namespace:
            self.signing_requests = Informer(
                client,
                CERTIFICATE_SIGNING_REQUESTS,
                clock,
                indexers={indexes.BY_ISSUER: indexes.awaited_signers},
            )

    def _follow_certificates(self, mine: Mine | None) -> Informer[Certificate]:
        return follow_some(
            self._client,
            CERTIFICATES,
            self._clock,
            keep=shard_filter.keep_certificates(mine, self.certificate_keys_for) if mine else None,
            found_by=shard_filter.target_of,
            namespace=self._namespace,
            indexers={
                indexes.BY_TARGET: indexes.target_secrets,
                indexes.BY_NEXT_KEY: indexes.next_keys,
                indexes.BY_ISSUER: indexes.own_issuers,
                indexes.BY_FAILURE: indexes.failures,
                indexes.BY_CONDITION: indexes.conditions_but_ready,
                indexes.BY_OWNER: indexes.owner_uids,
            },
            packing=replace(layouts.plain(Certificate), note=_note),
        )

    def _follow_requests(self, mine: Mine | None) -> Informer[CertificateRequest]:
        return follow_some(
            self._client,
            CERTIFICATE_REQUESTS,
            self._clock,
            keep=shard_filter.keep_requests(mine) if mine else None,
            namespace=self._namespace,
            indexers={
                indexes.BY_OWNER: indexes.owning_certificates,
                indexes.BY_ISSUER: indexes.awaited_issuers,
            },
            packing=layouts.requests(self._is_settled),
        )

    def _follow_orders(self) -> Informer[Order]:
        return Informer(
            self._client,
            ORDERS,
            self._clock,
            namespace=self._namespace,
            indexers={
                indexes.BY_OWNER: indexes.owner_uids,
                indexes.BY_ISSUER: indexes.open_issuers,
                indexes.BY_CERTIFICATE: indexes.named_certificates,
                indexes.BY_URL: indexes.order_urls,
                indexes.BY_NAMES: indexes.issued_names,
            },
            packing=layouts.plain(Order),
        )

    @property
    def issuer_informers(self) -> list[Informer[Any]]:
        """The informers of Issuers and, unless in one namespace, of ClusterIssuers."""
        return [informer for informer in (self.issuers, self.cluster_issuers) if informer is not None]

    def issuers_of(self, kind: str) -> Informer[Any] | None:
        """The informer of ClusterIssuers, for that kind, or of Issuers. None: it is not followed."""
        return self.cluster_issuers if kind == CLUSTER_ISSUERS.kind else self.issuers

    def add(self, informers: Iterable[Informer[Any]]) -> None:
        """Run these informers together with the others; must be called before `start`."""
        self._others += informers

    def start(self, tasks: TaskSet) -> None:
        """Begin to follow the server."""
        for informer in self._all():
            tasks.start(informer.run(), name=f"informer of {informer.kind.plural}")

    async def wait_synced(self, *, patience_s: float | None = None) -> None:
        """Return when each informer is in sync. Raises `TimeoutError` when for `patience_s` nothing arrives,
        however much is still to come."""
        waits = [asyncio.ensure_future(informer.synced.wait()) for informer in self._all()]
        try:
            pages = -1
            while not self.synced:
                if pages == (pages := sum(informer.pages for informer in self._all())):
                    raise TimeoutError
                await asyncio.wait(waits, timeout=patience_s)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def synced(self) -> bool:
        """Whether each informer is in sync with the server."""
        return all(informer.synced.is_set() for informer in self._all())

    def requests_of(self, owner: str) -> list[CertificateRequest]:
        """The requests owned by a Certificate of that name, perhaps by a deleted one: compare their UIDs."""
        return self.requests.cache.by_index(indexes.BY_OWNER, owner)

    def requests_for(self, issuer: str) -> list[CertificateRequest]:
        """The unfinished requests to that issuer or set (see `issuer_value`)."""
        return self.requests.cache.by_index(indexes.BY_ISSUER, issuer)

    def signing_requests_for(self, issuer: str) -> list[CertificateSigningRequest]:
        """The open CertificateSigningRequests to that issuer (see `issuer_value`)."""
        informer = self.signing_requests
        return informer.cache.by_index(indexes.BY_ISSUER, issuer) if informer is not None else []

    def orders_for(self, issuer: str) -> list[Order]:
        """The Orders for that issuer that are not final (see `issuer_value`)."""
        return self.orders.cache.by_index(indexes.BY_ISSUER, issuer)

    def orders_at(self, url: str) -> list[Order]:
        """The Orders with this URL at their server."""
        return self.orders.cache.by_index(indexes.BY_URL, url)

    def orders_with(self, namespace: str, spec: OrderSpec) -> list[Order]:
        """The Orders of a namespace that have got a certificate for the names of `spec` from its issuer."""
        return self.orders.cache.by_index(indexes.BY_NAMES, indexes.names_of(namespace, spec))

    def challenges_for(self, issuer: str) -> list[Challenge]:
        """The Challenges for that issuer that are not final (see `issuer_value`)."""
        return self.challenges.cache.by_index(indexes.BY_ISSUER, issuer)

    def orders_of(self, request: ObjectMeta) -> list[Order]:
        """The Orders that a request owns."""
        return self.orders.cache.by_index(indexes.BY_OWNER, request.uid)

    def orders_for_certificate(self, owner: str) -> list[Order]:
        """The Orders that were made for a Certificate of that name, by their annotation."""
        return self.orders.cache.by_index(indexes.BY_CERTIFICATE, owner)

    def challenges_of(self, order: ObjectMeta) -> list[Challenge]:
        """The Challenges that an Order owns."""
        return self.challenges.cache.by_index(indexes.BY_OWNER, order.uid)

    def certificates_for(self, secret: str, *, but: ObjectKey) -> list[Certificate]:
        """The other Certificates whose target is that Secret."""
        cache = self.certificates.cache
        certificates = (cache.get(key) for key in self.certificate_keys_for(secret) if key != but)
        return [certificate for certificate in certificates if certificate is not None]

    def certificate_keys_for(self, secret: str) -> Sequence[ObjectKey]:
        """The keys of the Certificates whose target is that Secret."""
        return self.certificates.cache.keys_by_index(indexes.BY_TARGET, secret)

    def ends_at(self, certificate: ObjectKey) -> int:
        """When the certificate of a Certificate ends, in seconds since 1970; 0 where there is none."""
        return self.certificates.cache.note(certificate) >> 1

    def has_next_key(self, certificate: ObjectKey) -> bool:
        """Whether the Certificate names a next-key Secret: an issuance has begun."""
        return bool(self.certificates.cache.note(certificate) & 1)

    def certificates_from(self, issuer: str) -> list[Certificate]:
        """The Certificates of that issuer of our group (see `issuer_value`)."""
        return self.certificates.cache.by_index(indexes.BY_ISSUER, issuer)

    def certificates_of(self, owner: ObjectMeta) -> list[Certificate]:
        """The Certificates that the object controls, such as an Ingress."""
        return self.certificates.cache.by_index(indexes.BY_OWNER, owner.uid)

    def failing_certificates(self) -> list[Certificate]:
        """The Certificates whose last attempt has failed."""
        return self.certificates.cache.by_index(indexes.BY_FAILURE, indexes.FAILING)

    def has_failed_at(self, moment: datetime) -> bool:
        """Whether the last attempt of some Certificate has failed in that second."""
        return self.certificates.cache.has(indexes.BY_FAILURE, moment.isoformat())

    def certificates_issuing(self) -> list[Certificate]:
        """The Certificates with a condition `Issuing`, whatever its status."""
        return self.certificates.cache.by_index(indexes.BY_CONDITION, reasons.ISSUING)

    def issuers_with(self, ca_secret: str) -> list[Issuer]:
        """The CA Issuers, of all namespaces, whose key pair is in a Secret of that name."""
        return self.issuers.cache.by_index(indexes.BY_CA, ca_secret)

    def cluster_issuers_with(self, ca_secret: str) -> list[ClusterIssuer]:
        """The CA ClusterIssuers whose key pair is in a Secret of that name."""
        informer = self.cluster_issuers
        return informer.cache.by_index(indexes.BY_CA, ca_secret) if informer is not None else []

    def strip_key(self, secret: Secret, public_key_der: bytes) -> bool:
        """Strip the private key of the cached Secret, unless an issuer needs it; return whether it is
        stripped. `public_key_der`: the public half of the key."""
        return self._is_only_served(secret) and self.secrets.strip_key(secret, public_key_der)

    def strip_request(self, request: CertificateRequest) -> None:
        """Drop the answer from a cached request that has been answered, if the cache still has this
        revision."""
        cache, key = self.requests.cache, request.metadata.key
        if cache.revision(key) == revision_of(request) and (bare := without_answer(request)) is not request:
            cache.overwrite(bare)

    async def complete_requests(self, certificate: Certificate) -> None:
        """Read the requests of the next revision in full, for the issuing step. Raises what a GET raises."""
        number = next_revision(certificate)
        for request in self.requests_of(owner_value(*certificate.metadata.key)):
            if not is_complete(request) and revision_number(request.metadata) == number:
                await self._complete(request)

    async def find_certificate(self, key: ObjectKey) -> Certificate | None:
        """The Certificate of that name, even if it is another replica's. Raises what a GET raises."""
        informer = self.certificates
        cached = informer.cache.get(key)
        if cached is not None or not isinstance(informer, PartialInformer) or key not in informer.others:
            return cached
        try:
            return await self._client.get(CERTIFICATES, key.name, key.namespace)
        except NotFound:
            return None

    async def find_rivals(self, certificate: Certificate) -> None:
        """Cache the Certificates of other replicas that have the same target Secret. Raises what a GET
        raises."""
        informer, target = self.certificates, indexes.target_value(certificate)
        if not isinstance(informer, PartialInformer):
            return
        for key in informer.others_by(target):
            if key in informer.cache:
                continue
            try:
                rival = await self._client.get(CERTIFICATES, key.name, key.namespace)
            except NotFound:
                informer.discard_value(target, key)
                continue
            if indexes.target_value(rival) == target:
                informer.put(rival)
            else:
                informer.discard_value(target, key)

    def is_others_request(self, key: ObjectKey) -> bool:
        """Whether another replica has a request of that name."""
        return isinstance(self.requests, PartialInformer) and key in self.requests.others

    async def _complete(self, request: CertificateRequest) -> None:
        meta = request.metadata
        try:
            current = await self._client.get(CERTIFICATE_REQUESTS, meta.name, meta.namespace)
        except NotFound:
            self.requests.forget(request)
            return
        if self.requests.cache.revision(meta.key) == revision_of(current):
            self.requests.cache.overwrite(current)
        else:
            self.requests.put(current)

    def _is_only_served(self, secret: Secret) -> bool:
        """Whether no issuer takes anything from that Secret."""
        return not self._is_of_issuer(secret.metadata.key)

    def _is_of_issuer(self, secret: ObjectKey) -> bool:
        """Whether an issuer names that Secret."""
        if self.issuers.cache.has(indexes.BY_REFERENCE, secret_value(*secret)):
            return True
        if self.cluster_issuers is None or secret.namespace != self._cluster_resource_namespace:
            return False
        return self.cluster_issuers.cache.has(indexes.BY_REFERENCE, secret_value("", secret.name))

    def _is_settled(self, request: CertificateRequest) -> bool:
        """Whether the request's Certificate has the certificate that answered the request. Before all
        Certificates are cached, requests answered before this process began count as settled, because most
        are."""
        owner = owning_certificate(request)
        if owner is None or not is_finished(request):
            return False
        certificate = self.certificates.cache.get(ObjectKey(request.metadata.namespace, owner))
        if certificate is None:
            return not self.certificates.synced.is_set()
        return revision_number(request.metadata) <= issued_revision(certificate)

    def _refers_to(self, secret: ObjectKey) -> bool:
        """Whether a Certificate or an issuer names that Secret."""
        value, certificates = secret_value(*secret), self.certificates.cache
        if certificates.has(indexes.BY_TARGET, value) or certificates.has(indexes.BY_NEXT_KEY, value):
            return True
        return self._is_of_issuer(secret)

    def _all(self) -> list[Informer[Any]]:
        informers: list[Informer[Any]] = [
            self.certificates,
            self.requests,
            *self.secrets.informers,
            self.issuers,
        ]
        informers += [self.orders, self.challenges, *self.sets.informers, *self._others]
        return informers + [
            more for more in (self.cluster_issuers, self.signing_requests) if more is not None
        ]


def _note(certificate: Certificate) -> int:
    """When its certificate ends, and in the last bit whether it names a next-key Secret."""
    moment = certificate.status.not_after
    ends_at = max(int(moment.timestamp()), 1) if moment is not None else 0
    return ends_at << 1 | bool(certificate.status.next_private_key_secret_name)


def signer_reference(caches: Caches, certificate: Certificate) -> IssuerReference | None:
    """The issuer that signed the Certificate: the spec's issuer; for a set, the issuer of the last signed
    request, if it is still a member. None: unknown."""
    reference, meta = certificate.spec.issuer_ref, certificate.metadata
    if not reference.is_set:
        return reference
    requests = caches.requests_of(owner_value(meta.namespace, meta.name))
    signer = recorded_signer(certificate, requests)
    return (
        signer if signer is not None and caches.sets.has_member(reference, meta.namespace, signer) else None
    )


def recorded_signer(
    certificate: Certificate, requests: Iterable[CertificateRequest]
) -> IssuerReference | None:
    """The issuer to which the last signed request was sent, among the requests that the Certificate owns;
    None: unknown. The owner of a request may have forged it."""
    uid = certificate.metadata.uid
    signed = [
        request
        for request in requests
        if is_controlled_by(request.metadata, uid)
        and conditions.is_true(request.status.conditions, reasons.READY)
    ]
    last = max(signed, key=lambda request: revision_number(request.metadata), default=None)
    if last is None:
        return None
    return read_member(last.metadata.annotations) if last.spec.issuer_ref.is_set else last.spec.issuer_ref
