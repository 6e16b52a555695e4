"""The schemas of metadata, options and CustomResourceDefinitions, with a sentence for each field.

Source: Kubernetes API reference: ObjectMeta, ListMeta, DeleteOptions, Status v1 meta;
CustomResourceDefinition v1 apiextensions.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def text(description: str, **more: Any) -> Json:
    """A string."""
    return {"type": "string", "description": description, **more}


def time(description: str) -> Json:
    """A time in RFC 3339."""
    return text(description, format="date-time")


def number(description: str, **more: Any) -> Json:
    """A whole number."""
    return {"type": "integer", "format": "int32", "description": description, **more}


def flag(description: str) -> Json:
    """True or false."""
    return {"type": "boolean", "description": description}


def listing(description: str, items: Json, **more: Any) -> Json:
    """A list."""
    return {"type": "array", "description": description, "items": items, **more}


def strings(description: str, **more: Any) -> Json:
    """A list of strings."""
    return listing(description, {"type": "string"}, **more)


def mapping(description: str, values: Json | None = None) -> Json:
    """An object with any keys."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": values or {"type": "string"},
    }


def obj(description: str, /, *, required: tuple[str, ...] = (), **properties: Json) -> Json:
    """An object with named fields."""
    made: Json = {"type": "object", "description": description, "properties": properties}
    if required:
        made["required"] = list(required)
    return made


def anything(description: str) -> Json:
    """An object whose fields are not checked here."""
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}


def _patched_by(key: str) -> Json:
    return {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key}


def _merged_by(key: str) -> Json:
    return {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        **_patched_by(key),
    }


API_VERSION = text("The version that the object is written in, group/version.")
KIND = text("The kind of the object.")

OBJECT_META = obj(
    "Metadata that every object has.",
    name=text("The name, unique among the objects of the kind in the namespace. It cannot be changed."),
    generateName=text("A prefix to make a unique name from, where no name is given."),
    namespace=text("The namespace that the object lives in. It cannot be changed."),
    selfLink=text("No longer filled."),
    uid=text("An identifier that no other object ever had or will have. Set by the server."),
    resourceVersion=text("Names this state of the object, for optimistic locking and watches."),
    generation=number("Counts changes of what is wanted (the spec).", format="int64"),
    creationTimestamp=time("When the object was created."),
    deletionTimestamp=time(
        "When deletion was requested; the object is removed once its finalizers are gone."
    ),
    deletionGracePeriodSeconds=number("Seconds to leave before the object is removed.", format="int64"),
    labels=mapping("Keys and values to select objects by."),
    annotations=mapping("Keys and values that tools keep with the object and that are not selected by."),
    finalizers=strings(
        "Names of what must be done before the object is removed.",
        **{"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"},
    ),
    ownerReferences=listing(
        "The objects that this one belongs to; when all of them are gone, it is deleted.",
        obj(
            "One owner.",
            required=("apiVersion", "kind", "name", "uid"),
            apiVersion=text("The owner's API version."),
            kind=text("The owner's kind."),
            name=text("The owner's name."),
            uid=text("The owner's UID."),
            controller=flag("Whether this owner is the one that manages the object."),
            blockOwnerDeletion=flag("Whether the owner must wait for this object in foreground deletion."),
        ),
        **_merged_by("uid"),
    ),
    managedFields=listing("Which manager set which fields.", anything("One manager's fields.")),
)
"""The fields of every object's metadata."""

LIST_META = obj(
    "Metadata of a list.",
    resourceVersion=text("The state that the list is of."),
    remainingItemCount=number("How many objects follow after this page.", format="int64"),
    selfLink=text("No longer filled."),
)

# `continue` is a word of Python's own.
LIST_META["properties"]["continue"] = text("Where the next page begins; empty on the last.")

DELETE_OPTIONS = obj(
    "How to delete.",
    apiVersion=API_VERSION,
    kind=KIND,
    gracePeriodSeconds=number("Seconds to leave before the object is removed.", format="int64"),
    preconditions=obj(
        "Delete only an object that still is this one.",
        uid=text("Its UID."),
        resourceVersion=text("Its state."),
    ),
    propagationPolicy=text("What becomes of dependents: Orphan, Background or Foreground."),
    orphanDependents=flag("An older way to say Orphan."),
    dryRun=strings("All: do everything but delete."),
)

STATUS = obj(
    "What became of a request.",
    apiVersion=API_VERSION,
    kind=KIND,
    metadata=LIST_META,
    status=text("Success or Failure."),
    message=text("A sentence for people."),
    reason=text("A word for programs."),
    details=anything("What it is about."),
    code=number("The HTTP status."),
)

_CONDITION = obj(
    "One observed aspect of the object.",
    required=("type", "status"),
    type=text("Which aspect."),
    status=text("True, False or Unknown."),
    reason=text("Why, in one word."),
    message=text("Why, in a sentence."),
    lastTransitionTime=time("When the status last changed."),
    observedGeneration=number("The generation that was last processed.", format="int64"),
)

_NAMES = obj(
    "What the resource is called.",
    required=("plural", "kind"),
    plural=text("The plural, as in URLs: lower case."),
    singular=text("The singular, lower case; the kind in lower case by default."),
    shortNames=strings("Short forms for the command line."),
    kind=text("The kind, in CamelCase."),
    listKind=text("The kind of lists; the kind and List by default."),
    categories=strings("Groups of resources to get together, such as all."),
)

_COLUMN = obj(
    "A column of kubectl get.",
    required=("name", "type", "jsonPath"),
    name=text("Its heading."),
    type=text("integer, number, string, boolean or date."),
    format=text("A closer description of the type."),
    description=text("What it shows."),
    priority=number("0 is always shown, more only in wide output."),
    jsonPath=text("Where the value lies in the object."),
)

_VERSION = obj(
    "A version of the resource.",
    required=("name", "served", "storage"),
    name=text("The version, such as v1."),
    served=flag("Whether the version is served."),
    storage=flag("Whether objects are stored in it; exactly one is."),
    deprecated=flag("Whether a warning is sent with each answer."),
    deprecationWarning=text("The text of that warning."),
    schema=obj("The schema.", openAPIV3Schema=anything("An OpenAPI v3 schema, structural.")),
    subresources=obj(
        "The subresources.",
        status=anything("Present: /status exists and only there the status can be changed."),
        scale=obj(
            "The scale subresource.",
            specReplicasPath=text("Path of the wanted number."),
            statusReplicasPath=text("Path of the observed number."),
            labelSelectorPath=text("Path of the selector."),
        ),
    ),
    additionalPrinterColumns=listing("What kubectl get shows beside the name.", _COLUMN),
    selectableFields=listing(
        "Fields that field selectors may name.",
        obj("One field.", required=("jsonPath",), jsonPath=text("A path of plain names.")),
    ),
)

CUSTOM_RESOURCE_DEFINITION = obj(
    "Brings a new kind to the server.",
    required=("spec",),
    spec=obj(
        "The kind.",
        required=("group", "names", "scope", "versions"),
        group=text("The API group, such as example.com."),
        names=_NAMES,
        scope=text("Cluster or Namespaced."),
        versions=listing("The versions.", _VERSION),
        conversion=obj(
            "How objects are converted between versions.",
            strategy=text("None: only the apiVersion changes."),
            webhook=anything("The webhook, with strategy Webhook."),
        ),
        preserveUnknownFields=flag("Must be false."),
    ),
    status=obj(
        "What the server made of it.",
        conditions=listing(
            "Established and NamesAccepted, among others.",
            _CONDITION,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        acceptedNames={**_NAMES, "required": [], "description": "The names in use."},
        storedVersions=strings("Versions that objects may be stored in."),
        observedGeneration=number("The generation that was last processed.", format="int64"),
    ),
)
