"""The definitions made from the structs: total, structural, and with what cert-manager's say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from certwright.kube.api.kinds import AnyKind
from certwright.resources.certificate import KEY_ALGORITHMS
from certwright.resources.crds import custom_resource_definitions, object_schema
from certwright.resources.pod import QUANTITY_PATTERN
from certwright.resources.table import CERTIFICATES, OUR_KINDS

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}


def _schema(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _at(kind: str, path: str) -> dict[str, Any]:
    schema = _schema(kind)
    for part in path.split("."):
        schema = schema["items"] if part == "[]" else schema["properties"][part]
    return schema


def _walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _walk(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from _walk(schema[word], f"{path}[]")


def _fields(info: Any, path: str = "") -> Iterator[str]:
    match info:
        case msgspec.inspect.Metadata():
            yield from _fields(info.type, path)
        case msgspec.inspect.UnionType():
            for part in info.types:
                yield from _fields(part, path)
        case msgspec.inspect.VarTupleType():
            yield from _fields(info.item_type, f"{path}[]")
        case msgspec.inspect.DictType():
            yield from _fields(info.value_type, f"{path}[]")
        case msgspec.inspect.StructType():
            for field in info.fields:
                yield f"{path}.{field.encode_name}"
                if field.encode_name != "metadata" or path:
                    yield from _fields(field.type, f"{path}.{field.encode_name}")


@pytest.mark.parametrize("kind", OUR_KINDS, ids=lambda kind: kind.kind)
def test_every_field_of_the_structs_is_in_the_schema_and_no_other(kind: AnyKind) -> None:
    of_structs = set(_fields(msgspec.inspect.type_info(kind.type)))
    of_schema = {path for path, _ in _walk(_schema(kind.kind)) if path and not path.endswith("]")}
    assert of_structs == of_schema - {".apiVersion", ".kind"}


@pytest.mark.parametrize("kind", OUR_KINDS, ids=lambda kind: kind.kind)
def test_every_field_has_a_type_and_a_description(kind: AnyKind) -> None:
    for path, schema in _walk(_schema(kind.kind)):
        if path == ".metadata" and "description" not in schema:
            continue
        assert schema.get("type") or schema.get("x-kubernetes-int-or-string") or path.endswith(".config"), (
            path
        )
        if not path.endswith("]"):
            assert schema["description"].rstrip().endswith((".", "?")), path


def test_our_own_keywords_do_not_leak_into_the_schema() -> None:
    for crd in CRDS.values():
        for path, schema in _walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            assert not schema.keys() & {"needed", "atomic", "map_keys"}, path
            assert isinstance(schema.get("required", []), list), path


def test_names_and_scope_are_those_of_cert_manager() -> None:
    columns = {
        crd["metadata"]["name"]: (
            crd["spec"]["scope"],
            crd["spec"]["names"].get("shortNames", []),
            crd["spec"]["names"]["categories"],
        )
        for crd in CRDS.values()
    }
    ours, acme = ["cert-manager"], ["cert-manager", "cert-manager-acme"]
    assert columns == {
        "certificates.cert-manager.io": ("Namespaced", ["cert", "certs"], ours),
        "certificaterequests.cert-manager.io": ("Namespaced", ["cr", "crs"], ours),
        "issuers.cert-manager.io": ("Namespaced", ["iss"], ours),
        "clusterissuers.cert-manager.io": ("Cluster", ["ciss"], ours),
        "orders.acme.cert-manager.io": ("Namespaced", [], acme),
        "challenges.acme.cert-manager.io": ("Namespaced", [], acme),
        # Not of cert-manager.
        "issuersets.certwright.io": ("Namespaced", [], ours),
        "clusterissuersets.certwright.io": ("Cluster", [], ours),
        "deliveries.certwright.io": ("Namespaced", [], ours),
    }


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Certificate", ["Ready", "Secret", "Issuer*", "Status*", "Expiration*", "Age"]),
        ("CertificateRequest", ["Approved", "Denied", "Ready", "Issuer", "Requester", "Status*", "Age"]),
        ("Issuer", ["Ready", "Status*", "Age"]),
        ("ClusterIssuer", ["Ready", "Status*", "Age"]),
        ("Order", ["State", "Issuer*", "Reason*", "Age"]),
        ("Challenge", ["State", "Domain", "Reason*", "Age"]),
    ],
)
def test_printer_columns_are_those_of_cert_manager(kind: str, columns: list[str]) -> None:
    version = CRDS[kind]["spec"]["versions"][0]
    names = [
        column["name"] + ("*" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    ]
    assert names == columns
    assert version["subresources"] == {"status": {}}
    selectable = [field["jsonPath"] for field in version.get("selectableFields", [])]
    refs = [f".spec.issuerRef.{part}" for part in ("group", "kind", "name")]
    assert selectable == ([] if kind.endswith("Issuer") else refs)


@pytest.mark.parametrize(
    ("kind", "path", "required"),
    [
        ("Certificate", "spec", ["issuerRef", "secretName"]),
        ("Certificate", "spec.issuerRef", ["name"]),
        ("Certificate", "spec.keystores.jks", ["create"]),
        ("Certificate", "spec.renewal.windows.[]", ["cron", "windowDuration"]),
        ("Certificate", "status.conditions.[]", ["status", "type"]),
        ("CertificateRequest", "spec", ["issuerRef", "request"]),
        ("Order", "spec", ["issuerRef", "request"]),
        ("Order", "status.authorizations.[].challenges.[]", ["token", "type", "url"]),
        (
            "Challenge",
            "spec",
            ["authorizationURL", "dnsName", "issuerRef", "key", "solver", "token", "type", "url"],
        ),
        ("Issuer", "spec.acme", ["privateKeySecretRef", "server"]),
        ("Issuer", "spec.acme.externalAccountBinding", ["keyID", "keySecretRef"]),
        ("Issuer", "spec.acme.solvers.[].dns01.azureDNS", ["resourceGroupName", "subscriptionID"]),
        ("Issuer", "spec.acme.solvers.[].dns01.webhook", ["groupName", "solverName"]),
        ("ClusterIssuer", "spec.vault", ["auth", "path", "server"]),
        ("ClusterIssuer", "spec.vault.auth.appRole", ["path", "roleId", "secretRef"]),
        ("ClusterIssuer", "spec.venafi.ngts", ["credentialsRef", "tsgID"]),
        ("ClusterIssuer", "spec.ca", ["secretName"]),
    ],
)
def test_required_fields_are_those_of_cert_manager(kind: str, path: str, required: list[str]) -> None:
    assert _at(kind, path)["required"] == required


def test_metadata_and_spec_are_required_where_cert_manager_requires_them() -> None:
    assert {kind: _schema(kind).get("required", []) for kind in CRDS} == {
        "Certificate": [],
        "CertificateRequest": [],
        "Issuer": ["spec"],
        "ClusterIssuer": ["spec"],
        "Order": ["metadata", "spec"],
        "Challenge": ["metadata", "spec"],
        "IssuerSet": ["spec"],
        "ClusterIssuerSet": ["spec"],
        "Delivery": ["spec"],
    }


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        (
            "Certificate",
            "status.conditions",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        ("Certificate", "status.conditions.[].status", {"enum": ["True", "False", "Unknown"]}),
        ("Certificate", "spec.dnsNames", {"x-kubernetes-list-type": "atomic"}),
        ("Certificate", "spec.privateKey.algorithm", {"enum": list(KEY_ALGORITHMS)}),
        ("Certificate", "spec.renewBeforePercentage", {"type": "integer", "format": "int32"}),
        ("Certificate", "spec.renewal.windows.[].cron", {"minLength": 1}),
        ("Certificate", "spec.isCA", {"type": "boolean"}),
        ("Certificate", "status.notAfter", {"type": "string", "format": "date-time"}),
        ("CertificateRequest", "spec.request", {"type": "string", "format": "byte"}),
        ("CertificateRequest", "spec.extra", {"type": "object"}),
        ("Issuer", "spec.acme.renewalInformationSource", {"default": "ARI", "enum": ["ARI", "None"]}),
        ("Issuer", "spec.acme.preferredChain", {"maxLength": 64}),
        (
            "Issuer",
            "spec.acme.solvers.[].dns01.webhook.config",
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        (
            "Issuer",
            "spec.acme.solvers.[].http01.gatewayHTTPRoute.parentRefs.[].port",
            {"format": "int32", "minimum": 1, "maximum": 65535},
        ),
        (
            "Issuer",
            "spec.acme.solvers.[].http01.ingress.podTemplate.spec.imagePullSecrets",
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ],
)
def test_formats_enums_and_lists_are_those_of_cert_manager(
    kind: str, path: str, words: dict[str, Any]
) -> None:
    schema = _at(kind, path)
    assert {word: schema.get(word) for word in words} == words


def test_usages_are_the_23_of_the_api() -> None:
    assert len(_at("Certificate", "spec.usages.[]")["enum"]) == 23
    assert _at("CertificateRequest", "spec.usages.[]")["enum"] == _at("Certificate", "spec.usages.[]")["enum"]


def test_the_schema_of_a_kind_begins_with_what_every_object_has() -> None:
    assert list(object_schema(CERTIFICATES.type)["properties"])[:3] == ["apiVersion", "kind", "metadata"]


GO_INT32 = {"renewBeforePercentage", "revisionHistoryLimit", "port", "weight"}
"""The fields of cert-manager's types, and of the Kubernetes types in them, that are an int32 in Go."""


@pytest.mark.parametrize("kind", CRDS)
def test_numbers_of_clients_with_32_bits_are_bounded(kind: str) -> None:
    integers = {
        path: (schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1))
        for path, schema in _walk(_schema(kind))
        if schema.get("type") == "integer"
    }
    for path, (low, high) in integers.items():
        is_int32 = path.rpartition(".")[2] in GO_INT32
        assert (low >= -(2**31) and high < 2**31) == is_int32, path


@pytest.mark.parametrize(
    ("quantity", "is_valid"),
    [
        *((text, True) for text in ("1.5", "+.5Mi", "1e-9", "1E99")),
        *((text, False) for text in ("1e1.5", "1e400", "1e2147483648", "1e")),
    ],
)
def test_go_decodes_every_quantity(quantity: str, is_valid: bool) -> None:
    assert bool(re.fullmatch(QUANTITY_PATTERN, quantity)) == is_valid
