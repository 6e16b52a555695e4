"""Resource definitions: names, validation, presentation and storage of each resource.

A `ResourceDefinition` describes one version of one resource. Handlers read nothing else, so that built-in
kinds and custom resources share one code path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.routes import Authorizer
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.store.contract import Row
from certwright.kube.util.http_messages import Identity

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Column(msgspec.Struct, frozen=True):
    """A column of a Table; renders its cell from an object and a time (`now` in seconds since 1970).

    Source: Kubernetes API reference, TableColumnDefinition v1 meta.
    """

    name: str
    type: str
    cell: Callable[[Json, float], Any]
    format: str = ""
    description: str = ""
    priority: int = 0


class WebhookTarget(msgspec.Struct, frozen=True):
    """The endpoint of a webhook: a URL, or a Service by namespace, name, port and path. `ca_pem` empty: the
    system's certificate authorities; `skip_verify`: any certificate is trusted."""

    url: str
    ca_pem: str
    service: tuple[str, str] | None = None
    port: int = 443
    path: str = "/"
    skip_verify: bool = False


class Conversion(msgspec.Struct, frozen=True):
    """A conversion webhook. `stored` is the version that objects are stored in now, `first` that of rows
    without a version."""

    target: WebhookTarget
    review_versions: tuple[str, ...]
    stored: str
    first: str


class Strategy(msgspec.Struct, frozen=True):
    """Kind-specific behavior beyond the schema (as apiserver's strategies). Objects are changed in place.

    `prepare_create(obj)` or `prepare_update(new, old)`, and then `defaults(obj)`, run before admission;
    `prepare_status(new, old)` runs on writes to the status subresource, when all but the status is already as
    stored. `validate(new, old)` runs last, on objects that have passed their schema; `old` is None on create.
    `warnings(new, old)` are sent to the client that wrote an object which `validate` accepts.
    `identify(obj, user)` records the user in a new object. `mark_deleted(obj)` marks an object whose deletion
    has begun and that stays until its contents are deleted.
    """

    prepare_create: Callable[[Json], None] = lambda _: None
    prepare_update: Callable[[Json, Json], None] = lambda _new, _old: None
    defaults: Callable[[Json], None] = lambda _: None
    prepare_status: Callable[[Json, Json], None] = lambda _new, _old: None
    validate: Callable[[Json, Json | None], list[FieldError]] = lambda _new, _old: []
    warnings: Callable[[Json, Json | None], list[str]] = lambda _new, _old: []
    identify: Callable[[Json, Identity], None] | None = None
    mark_deleted: Callable[[Json], None] | None = None


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an object with a separate path.

    `shape(new, old)` returns the object to store for the written part (None: a function of its own does, see
    `ApiServer`). `kind`: group, version and kind of the accepted object, if it is another kind. `scale`: the
    paths of its numbers (see `scale`).
    """

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    shape: Callable[[Json, Json], Json] | None = None
    kind: tuple[str, str, str] | None = None
    scale: Mapping[str, str] = msgspec.field(default_factory=dict)


STATUS = Subresource(name="status")
"""The status of an object. A definition has it by `status_subresource`, and not among its `subresources`."""


class KindExtension(msgspec.Struct, frozen=True, kw_only=True):
    """Extension of a kind by the embedding program, beyond its schema.

    `mutate(user, new, old)` changes a write in place, before mutating webhooks and again after them.
    `validate(new, old)` returns the errors of a write that the schema accepts; the server reports them as a
    denial by an admission webhook; `warnings(new, old)` returns the warnings about an accepted write.
    `authorize(access, user, new, old)` raises `Forbidden` where the user may
    not make this change. `old` is None on create. All three run on each server and MUST be fast, without I/O,
    and safe in any thread. `enforced_rules` are the texts of CEL rules in the kind's CustomResourceDefinition
    that `validate` enforces; CEL does not run them.
    """

    mutate: Callable[[Identity, Json, Json | None], None] = lambda _user, _new, _old: None
    validate: Callable[[Json, Json | None], list[FieldError]] = lambda _new, _old: []
    warnings: Callable[[Json, Json | None], list[str]] = lambda _new, _old: []
    authorize: Callable[[Access, Identity, Json, Json | None], None] | None = None
    enforced_rules: frozenset[str] = frozenset()


Extensions = Mapping[tuple[str, str], KindExtension]
"""Extensions by group and kind."""


class Access(msgspec.Struct, frozen=True):
    """The parts of the server that an extension may use: the authorizer, and the served kinds."""

    authorizer: Authorizer
    by_kind: Callable[[str, str], ResourceDefinition | None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResourceDefinition:
    """One version of one resource.

    `bucket` is the same for all versions of a resource: rows contain no apiVersion; `prefix` adds it to the
    output. `selectable_fields` are paths without a leading dot, beside `metadata.name` and
    `metadata.namespace`, which always work. `strategic` makes the merge key of lists by their path (None:
    strategic merge patches are refused). `field_readers` gives the path in the stored object, or the value,
    of fields stored elsewhere than at their own path. `unconditional_update`: a PUT need not name a revision.
    `create_on_update`: a PUT of a missing object creates it.

    `unserved` are the versions of a custom resource that are not served. `warning` is added to every answer
    (a deprecated version). `virtual` kinds are answered and never stored. `terminating`: its definition is
    being deleted, and nothing new is accepted. `conversion`: a webhook converts to this version.
    `stored_as` names the bucket of another resource that this one is another view of; then `body_out` makes
    the body of this view from a row's, and `body_in` the reverse. Both leave a body that already has their
    form as it is. `stored_version` is the version announced for newly stored objects.

    `api_version` is `group/version`, `resource` is `plural.group` as in error messages; for the core group
    only the version and only the plural.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: Schema
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    served_versions: tuple[str, ...] = ()
    unserved: tuple[ResourceDefinition, ...] = ()
    status_subresource: bool = False
    has_generation: bool = False
    selectable_fields: tuple[str, ...] = ()
    name_rule: object_names.NameRule = object_names.dns_subdomain
    strategic: Callable[[], Mapping[tuple[str, ...], str]] | None = None
    strategy: Strategy = field(default_factory=Strategy)
    is_crd: bool = False
    custom: bool = False
    warning: str = ""
    conversion: Conversion | None = None
    extension: KindExtension | None = None
    terminating: bool = False
    subresources: tuple[Subresource, ...] = ()
    field_readers: Mapping[str, str | Callable[[Json], str]] = field(default_factory=dict)
    unconditional_update: bool = False
    create_on_update: bool = False
    virtual: bool = False
    stored_as: str = ""
    body_out: Callable[[Row], bytes] | None = None
    body_in: Callable[[bytes], bytes] | None = None
    stored_version: str = ""
    api_version: str = field(init=False)
    resource: str = field(init=False)
    bucket: str = field(init=False)
    prefix: bytes = field(init=False)
    list_prefix: bytes = field(init=False)

    def __post_init__(self) -> None:
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        derived = {
            "api_version": api_version,
            "resource": f"{self.plural}.{self.group}" if self.group else self.plural,
            "list_kind": self.list_kind or f"{self.kind}List",
            "stored_version": self.stored_version or self.version,
            "served_versions": self.served_versions or (self.version,),
            "bucket": self.stored_as or (f"{self.group}/{self.plural}" if self.group else self.plural),
            "prefix": _opening(api_version, self.kind),
            "list_prefix": _opening(api_version, self.list_kind or f"{self.kind}List"),
        }
        # A frozen class sets its derived fields like this.
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, `status` among them."""
        if name == "status" and self.status_subresource:
            return STATUS
        for subresource in self.subresources:
            if subresource.name == name:
                return subresource
        return None


def _opening(api_version: str, kind: str) -> bytes:
    return f'{{"apiVersion":"{api_version}","kind":"{kind}","metadata":'.encode()
