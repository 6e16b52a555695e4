"""AWS's own client; see `driven.py`."""

from __future__ import annotations

from typing import Any

import boto3
from driven import Given, drive


class Client:
    """See `driven.Client`. All values are in one record, as most clients write them."""

    def __init__(self, given: Given) -> None:
        self._client = boto3.client(
            "route53",
            endpoint_url=given["url"],
            region_name="us-east-1",
            aws_access_key_id=given["key"],
            aws_secret_access_key=given["secret"],
        )
        zones = self._client.list_hosted_zones_by_name(DNSName=given["zone"])["HostedZones"]
        self._zone = next(zone["Id"] for zone in zones if not zone["Config"]["PrivateZone"])
        self._name = given["name"]

    def add(self, value: str) -> None:
        values = [*self.values(), f'"{value}"']
        change = self._change("UPSERT", values)
        while change["Status"] == "PENDING":
            change = self._client.get_change(Id=change["Id"])["ChangeInfo"]

    def values(self) -> list[str]:
        answer = self._client.list_resource_record_sets(
            HostedZoneId=self._zone, StartRecordName=self._name, StartRecordType="TXT"
        )
        return [
            value["Value"]
            for rrset in answer["ResourceRecordSets"]
            if (rrset["Name"], rrset["Type"]) == (f"{self._name}.", "TXT")
            for value in rrset["ResourceRecords"]
        ]

    def remove(self) -> None:
        self._change("DELETE", self.values())

    def _change(self, action: str, values: list[str]) -> dict[str, Any]:
        record = {
            "Name": self._name,
            "Type": "TXT",
            "TTL": 60,
            "ResourceRecords": [{"Value": value} for value in values],
        }
        batch = {"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        answer = self._client.change_resource_record_sets(HostedZoneId=self._zone, ChangeBatch=batch)
        change: dict[str, Any] = answer["ChangeInfo"]
        return change


drive(Client)
