"""Cloudflare's own client; see `driven.py`."""

from __future__ import annotations

from typing import Any

from cloudflare import Cloudflare
from driven import Given, drive


class Client:
    """See `driven.Client`."""

    def __init__(self, given: Given) -> None:
        self._client = Cloudflare(api_token=given["token"], base_url=given["url"], max_retries=0)
        self._name = given["name"]
        (zone,) = list(self._client.zones.list(name=given["zone"]))
        self._zone: str = zone.id

    def add(self, value: str) -> None:
        self._client.dns.records.create(
            zone_id=self._zone, type="TXT", name=self._name, content=f'"{value}"', ttl=60
        )

    def values(self) -> list[str]:
        return [str(record.content) for record in self._records()]

    def remove(self) -> None:
        for record in self._records():
            self._client.dns.records.delete(record.id, zone_id=self._zone)

    def _records(self) -> list[Any]:
        return list(
            self._client.dns.records.list(
                zone_id=self._zone, type="TXT", name={"exact": self._name}, per_page=5
            )
        )


drive(Client)
