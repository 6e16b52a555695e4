"""Built-in kinds are read as Go's types read them; quantities as apimachinery's `Quantity` writes them."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.cel import functions
from certwright.kube.apiserver.kinds.native import NativeSchema, merge_keys_of
from certwright.kube.apiserver.kinds.native_scalars import canonical
from kube.apiserver.callers import Json

INGRESS = NativeSchema("networking.k8s.io/v1", "Ingress")
EVENT = NativeSchema("v1", "Event")
POD = NativeSchema("v1", "Pod")


def read(schema: NativeSchema, **fields: Any) -> Json:
    obj: Json = {"metadata": {}, **fields}
    assert schema.process(obj) == []
    return obj


def refused(schema: NativeSchema, **fields: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        schema.process({"metadata": {}, **fields})
    return str(caught.value).partition(": ")[2]


def test_zero_values_that_go_writes_are_written() -> None:
    assert read(EVENT) == {
        "metadata": {},
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    assert read(NativeSchema("rbac.authorization.k8s.io/v1", "Role"))["rules"] is None
    assert read(INGRESS)["status"] == {"loadBalancer": {}}


def test_empty_values_are_left_out_and_pointers_kept() -> None:
    secret = read(NativeSchema("v1", "Secret"), data={}, type="", immutable=False)
    assert secret == {"metadata": {}, "immutable": False}


def test_nulls_mean_zero() -> None:
    assert read(NativeSchema("v1", "Secret"), data={"a": None}, type=None)["data"] == {"a": ""}
    assert read(NativeSchema("v1", "ConfigMap"), data={"a": None})["data"] == {"a": ""}


def test_unknown_fields_are_dropped_with_their_path() -> None:
    obj: Json = {"spec": {"rules": [{"host": "x", "colour": 1}]}, "surprise": 1}
    assert INGRESS.process(obj) == ["spec.rules[0].colour", "surprise"]
    assert obj["spec"]["rules"] == [{"host": "x"}]


def test_inline_fields_stand_in_the_object() -> None:
    pod = read(POD, spec={"containers": [], "volumes": [{"name": "v", "secret": {"secretName": "s"}}]})
    assert pod["spec"]["volumes"] == [{"name": "v", "secret": {"secretName": "s"}}]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"spec": {"rules": [{"host": 4}]}},
            "spec.rules[0].host: expected a string, got a number",
        ),
        (
            {"spec": {"rules": "all"}},
            "spec.rules: expected a list, got a string",
        ),
        (
            {"spec": []},
            "spec: expected an object, got a list",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_path(fields: Json, text: str) -> None:
    assert refused(INGRESS, **fields) == text


@pytest.mark.parametrize("count", [1.5, "1", True, 2**31])
def test_a_number_is_whole_and_fits(count: object) -> None:
    assert "count: expected an integer of 32 bits, got " in refused(EVENT, count=count)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
    ],
)
def test_times_are_kept_in_utc_and_whole_seconds(given: str, kept: str) -> None:
    assert read(EVENT, lastTimestamp=given)["lastTimestamp"] == kept


def test_fine_times_have_six_digits() -> None:
    fine = "2026-01-02T03:04:05.678901Z"
    assert read(EVENT, eventTime=fine)["eventTime"] == fine
    assert refused(EVENT, eventTime="2026-01-02T03:04:05Z").startswith(
        "eventTime: expected a time in RFC 3339 with"
    )


@pytest.mark.parametrize("given", ["yesterday", "", "2026-13-01T00:00:00Z", "2026-01-01"])
def test_what_is_no_time_is_refused(given: str) -> None:
    assert refused(EVENT, lastTimestamp=given).startswith("lastTimestamp: expected a time in RFC 3339")


def test_quantities_may_be_numbers() -> None:
    quota = NativeSchema("v1", "ResourceQuota")
    hard = {"pods": 4, "cpu": "1000m", "memory": "1024Ki"}
    assert read(quota, spec={"hard": hard})["spec"]["hard"] == {"pods": "4", "cpu": "1", "memory": "1Mi"}
    assert refused(quota, spec={"hard": {"cpu": "much"}}).startswith("quantities must match")


def test_merge_keys_are_known_at_any_depth() -> None:
    keys = merge_keys_of(POD.message)
    assert keys["spec", "containers"] == "name"
    assert keys["spec", "containers", "env"] == "name"
    assert keys["spec", "containers", "ports"] == "containerPort"
    assert keys["metadata", "finalizers"] == ""
    assert ("spec", "tolerations") not in keys


def test_schemas_say_how_lists_are_merged() -> None:
    ports = NativeSchema("v1", "Service").openapi["properties"]["spec"]["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["port", "protocol"]
    assert ports["items"]["properties"]["protocol"]["default"] == "TCP"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("0", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("100Mi", "100Mi"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("1E3", "1E3"),
        ("00012", "00012"),
        ("-1000m", "-1"),
        ("0.1n", "1n"),
        ("1.23456789012n", "2n"),
        ("8Ei", "9223372036854775807"),
        ("1e-30", "1e-9"),
        ("1000000000000000000000", "1"),
        ("9.352P", "9.352P"),
        ("m", "0"),
    ],
)
def test_a_quantity_is_written_as_go_writes_it(given: str, written: str) -> None:
    assert canonical(given) == written
    assert canonical(written) is not None


@pytest.mark.parametrize("text", ["", "x", "1 ", "1Kii", "1ki", "1_000", "1e", "--1", "1.2.3"])
def test_what_is_no_quantity_is_told(text: str) -> None:
    assert canonical(text) is None


@pytest.mark.parametrize("text", [digit * 10**6 + end for digit in "1." for end in ("", "0!")])
def test_a_text_of_a_million_digits_is_no_quantity(text: str) -> None:
    """A backtracking pattern would take hours."""
    assert canonical(text) is None
    assert not functions.FUNCTIONS["isQuantity"][0].run(text)
