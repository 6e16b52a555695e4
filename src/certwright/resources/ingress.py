"""Ingress and the kinds of the Gateway API, as far as certificates need them: which names use which Secret.

Objects of these kinds are only read; what is not declared here is ignored.

Source: Kubernetes API reference, Ingress v1 networking.k8s.io; Gateway API reference, Gateway and ListenerSet
v1 gateway.networking.k8s.io, XListenerSet v1alpha1 gateway.networking.x-k8s.io.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field

from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta, Struct, doc

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"


class IngressTLS(Struct, frozen=True, kw_only=True):
    """Hosts that share a certificate, and its Secret."""

    hosts: Annotated[tuple[str, ...], doc("The names that the certificate is for.")] = ()
    secret_name: Annotated[str, doc("The Secret with key and certificate.")] = ""


class IngressSpec(Struct, frozen=True, kw_only=True):
    """What of an Ingress concerns certificates."""

    tls: Annotated[tuple[IngressTLS, ...], doc("TLS settings, by Secret.")] = ()


class Ingress(Struct, frozen=True, kw_only=True):
    """Routes HTTP requests to Services."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[IngressSpec, doc("The desired routes.")] = IngressSpec()


class SecretReference(Struct, frozen=True, kw_only=True):
    """Names the Secret of a listener. `namespace` None: that of the listener's object."""

    group: Annotated[str, doc("API group; empty for Secrets.")] = ""
    kind: Annotated[str, doc("Secret, if left out.")] = ""
    name: Annotated[str, doc("Name of the Secret.")] = ""
    namespace: Annotated[str | None, doc("Namespace of the Secret.")] = None


class ListenerTLS(Struct, frozen=True, kw_only=True):
    """The TLS settings of a listener. `mode` None: not given; the API's default is Terminate."""

    mode: Annotated[str | None, doc("Terminate or Passthrough.")] = None
    certificate_refs: Annotated[tuple[SecretReference, ...], doc("The Secrets with certificates.")] = ()


class Listener(Struct, frozen=True, kw_only=True):
    """A port, protocol and host name that is listened on."""

    name: Annotated[str, doc("Name of the listener.")] = ""
    hostname: Annotated[str | None, doc("The host name; none: all.")] = None
    protocol: Annotated[str, doc("HTTP, HTTPS, TLS, …")] = ""
    tls: Annotated[ListenerTLS | None, doc("TLS settings.")] = None


class GatewaySpec(Struct, frozen=True, kw_only=True):
    """What of a Gateway concerns certificates."""

    listeners: Annotated[tuple[Listener, ...], doc("The listeners.")] = ()


class Gateway(Struct, frozen=True, kw_only=True):
    """Listens for connections, which routes attach to."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[GatewaySpec, doc("The listeners.")] = GatewaySpec()


class ParentReference(Struct, frozen=True, kw_only=True):
    """Names the Gateway that listeners are added to. `namespace` None: the namespace of the ListenerSet."""

    group: Annotated[str, doc("API group of the parent.")] = GATEWAY_GROUP
    kind: Annotated[str, doc("Kind of the parent.")] = "Gateway"
    name: Annotated[str, doc("Name of the parent.")] = ""
    namespace: Annotated[str | None, doc("Namespace of the parent.")] = None


class ListenerSetSpec(Struct, frozen=True, kw_only=True):
    """What of a ListenerSet concerns certificates."""

    parent_ref: Annotated[ParentReference, doc("The Gateway that the listeners are added to.")] = field(
        default_factory=ParentReference
    )
    listeners: Annotated[tuple[Listener, ...], doc("The listeners.")] = ()


class ListenerSet(Struct, frozen=True, kw_only=True):
    """Adds listeners to a Gateway."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ListenerSetSpec, doc("The listeners.")] = ListenerSetSpec()


IngressLike = Ingress | Gateway | ListenerSet
"""An object from which Certificates are made."""

INGRESSES: Final = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress", True, Ingress, ("ing",))
GATEWAYS: Final = Kind(GATEWAY_GROUP, "v1", "Gateway", "gateways", "gateway", True, Gateway, ("gtw",))
LISTENER_SETS: Final = Kind(
    GATEWAY_GROUP, "v1", "ListenerSet", "listenersets", "listenerset", True, ListenerSet, ("lset",)
)
EXPERIMENTAL_LISTENER_SETS: Final = Kind(
    "gateway.networking.x-k8s.io",
    "v1alpha1",
    "XListenerSet",
    "xlistenersets",
    "xlistenerset",
    True,
    ListenerSet,
    ("xlset",),
)
"""ListenerSets before version 1.5 of the Gateway API."""
