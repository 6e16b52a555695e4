"""DigitalOcean's own client; see `driven.py`."""

from __future__ import annotations

from typing import Any

from driven import Given, drive
from pydo import Client as DigitalOcean

HTTP = {"enforce_https": False}


class Client:
    """See `driven.Client`."""

    def __init__(self, given: Given) -> None:
        self._client = DigitalOcean(token=given["token"], endpoint=given["url"])
        self._zone, self._name = given["zone"], given["name"]
        assert self._client.domains.get(self._zone, **HTTP)["domain"]["name"] == self._zone

    def add(self, value: str) -> None:
        relative = self._name.removesuffix(f".{self._zone}")
        body = {"type": "TXT", "name": relative, "data": value, "ttl": 60}
        self._client.domains.create_record(self._zone, body, **HTTP)

    def values(self) -> list[str]:
        return [record["data"] for record in self._records()]

    def remove(self) -> None:
        for record in self._records():
            self._client.domains.delete_record(self._zone, record["id"], **HTTP)

    def _records(self) -> list[Any]:
        records: list[Any] = []
        while True:
            answer = self._client.domains.list_records(
                self._zone, name=self._name, type="TXT", per_page=1, page=len(records) + 1, **HTTP
            )
            records += answer["domain_records"]
            if "next" not in answer["links"].get("pages", {}):
                return records


drive(Client)
