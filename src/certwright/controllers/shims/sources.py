"""The informers of Ingresses, Gateways and ListenerSets.

Of Ingresses and Gateways only those with an annotation for the shims are cached: others take no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from certwright.controllers.shims.annotations import ShimOptions, concerns_us
from certwright.controllers.shims.desired import secrets_of
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey, Struct
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import decoded_or_none, json_decoder
from certwright.resources.ingress import (
    EXPERIMENTAL_LISTENER_SETS,
    GATEWAY_GROUP,
    GATEWAYS,
    INGRESSES,
    LISTENER_SETS,
    Gateway,
    Ingress,
    IngressLike,
    ListenerSet,
)

T = TypeVar("T", bound=IngressLike)

_BY_SECRET: Final = "secret"  # noqa: S105 - a name, no password
_BY_PARENT: Final = "parent"


class _Annotations(Struct, frozen=True):
    annotations: Mapping[str, str] = field(default_factory=dict)


class _Annotated(Struct, frozen=True):
    metadata: _Annotations = _Annotations()


_annotated: msgspec.json.Decoder[_Annotated] = json_decoder(_Annotated)


class Sources(msgspec.Struct, frozen=True):
    """The informers. None: that kind is ignored."""

    ingresses: Informer[Ingress] | None
    gateways: Informer[Gateway] | None
    listener_sets: Informer[ListenerSet] | None
    experimental_listener_sets: Informer[ListenerSet] | None

    @property
    def all(self) -> list[Informer[Any]]:
        """The existing informers."""
        informers = (self.ingresses, self.gateways, self.listener_sets, self.experimental_listener_sets)
        return [informer for informer in informers if informer is not None]

    def inherited(self, source: IngressLike) -> Mapping[str, str]:
        """The annotations of the Gateway of a ListenerSet; empty if it has none for the shims."""
        if not isinstance(source, ListenerSet):
            return {}
        parent = self.gateways.cache.get(_parent(source)) if self.gateways is not None else None
        return parent.metadata.annotations if parent is not None else {}


def follow_sources(
    client: Client, clock: Clock, namespace: str, options: ShimOptions, enabled: Collection[str]
) -> Sources:
    """Informers for the kinds whose controller is `enabled`, of one namespace unless it is empty."""

    def annotated(kind: Kind[T], auto: Sequence[str] = ()) -> Informer[T]:
        return PartialInformer(
            client,
            kind,
            clock,
            keep=_keep(auto),
            namespace=namespace,
            indexers={_BY_SECRET: _secrets},
            is_optional=True,
        )

    def all_of(kind: Kind[ListenerSet]) -> Informer[ListenerSet]:
        # The annotations may be their Gateway's.
        indexers = {_BY_SECRET: _secrets, _BY_PARENT: _parents}
        return Informer(client, kind, clock, namespace=namespace, indexers=indexers, is_optional=True)

    sets = "listenerset" in enabled and options.listener_sets
    # ListenerSets inherit the issuer of their Gateway.
    gateways = ("gateway-shim" in enabled and options.gateways) or sets
    return Sources(
        annotated(INGRESSES, options.auto_annotations) if "ingress-shim" in enabled else None,
        annotated(GATEWAYS) if gateways else None,
        all_of(LISTENER_SETS) if sets else None,
        all_of(EXPERIMENTAL_LISTENER_SETS) if sets else None,
    )


def using_secret(informer: Informer[T], secret: ObjectKey) -> list[T]:
    """The objects that name this Secret."""
    return informer.cache.by_index(_BY_SECRET, str(secret))


def attached_to(informer: Informer[ListenerSet], gateway: ObjectKey) -> list[ListenerSet]:
    """The ListenerSets of a Gateway."""
    return informer.cache.by_index(_BY_PARENT, str(gateway))


def _keep(auto: Sequence[str]) -> Callable[[msgspec.Raw], bool]:
    def keep(raw: msgspec.Raw) -> bool:
        source = decoded_or_none(_annotated, raw)
        # The informer reports what cannot be decoded.
        return source is None or concerns_us(source.metadata.annotations, auto)

    return keep


def _secrets(source: IngressLike) -> Iterable[str]:
    namespace = source.metadata.namespace
    return {str(ObjectKey(namespace, name)) for name in secrets_of(source)}


def _parents(listener_set: ListenerSet) -> Iterable[str]:
    parent = listener_set.spec.parent_ref
    is_gateway = parent.kind == GATEWAYS.kind and parent.group == GATEWAY_GROUP
    return (str(_parent(listener_set)),) if is_gateway else ()


def _parent(listener_set: ListenerSet) -> ObjectKey:
    parent = listener_set.spec.parent_ref
    return ObjectKey(parent.namespace or listener_set.metadata.namespace, parent.name)
