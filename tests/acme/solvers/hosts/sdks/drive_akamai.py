"""Akamai's signatures by its own client; see `driven.py`. The API itself has no client of Akamai's."""

from __future__ import annotations

from typing import Any

import requests
from akamai.edgegrid import EdgeGridAuth
from driven import Given, drive


class Client:
    """See `driven.Client`."""

    def __init__(self, given: Given) -> None:
        self._session = requests.Session()
        self._session.auth = EdgeGridAuth(
            client_token=given["client_token"],
            client_secret=given["client_secret"],
            access_token=given["access_token"],
        )
        self._name = given["name"]
        zone = f"{given['url']}/config-dns/v2/zones/{given['zone']}"
        self._session.get(zone).raise_for_status()
        self._url = f"{zone}/names/{given['name']}/types/TXT"

    def add(self, value: str) -> None:
        values = self.values()
        body: dict[str, Any] = {
            "name": self._name,
            "type": "TXT",
            "ttl": 60,
            "rdata": [*values, f'"{value}"'],
        }
        send = self._session.put if values else self._session.post
        send(self._url, json=body).raise_for_status()

    def values(self) -> list[str]:
        answer = self._session.get(self._url)
        if answer.status_code == 404:
            return []
        answer.raise_for_status()
        texts: list[str] = answer.json()["rdata"]
        return texts

    def remove(self) -> None:
        self._session.delete(self._url).raise_for_status()


drive(Client)
