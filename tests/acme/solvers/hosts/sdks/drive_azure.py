"""Microsoft's own client; see `driven.py`."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.dns import DnsManagementClient
from azure.mgmt.dns.models import RecordSet, TxtRecord
from driven import Given, drive

HTTP = {"enforce_https": False}


class Login:
    """A service principal; Microsoft's own accepts no http."""

    def __init__(self, given: Given) -> None:
        self._given = given

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """A token for these scopes."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self._given["client_id"],
            "client_secret": self._given["client_secret"],
            "scope": scopes[0],
        }
        url = f"{self._given['url']}/{self._given['tenant']}/oauth2/v2.0/token"
        with urlopen(Request(url, urlencode(form).encode())) as answer:  # noqa: S310
            settings = json.load(answer)
        return AccessToken(settings["access_token"], int(time.time()) + 3600)


class Client:
    """See `driven.Client`."""

    def __init__(self, given: Given) -> None:
        self._client = DnsManagementClient(
            Login(given),
            given["subscription"],
            base_url=given["url"],
            api_version="2018-05-01",
            credential_scopes=["https://management.azure.com/.default"],
        )
        self._place = (given["group"], given["zone"])
        self._name = given["name"].removesuffix(f".{given['zone']}")
        assert self._client.zones.get(*self._place, **HTTP).name == given["zone"]

    def add(self, value: str) -> None:
        there = self._read()
        records = list(there.txt_records or []) if there else []
        condition = {"if_match": there.etag} if there else {"if_none_match": "*"}
        records.append(TxtRecord(value=[value]))
        self._client.record_sets.create_or_update(
            *self._place, self._name, "TXT", RecordSet(ttl=60, txt_records=records), **condition, **HTTP
        )

    def values(self) -> list[str]:
        there = self._read()
        return ["".join(record.value or []) for record in (there.txt_records or [])] if there else []

    def remove(self) -> None:
        self._client.record_sets.delete(*self._place, self._name, "TXT", **HTTP)

    def _read(self) -> Any:
        try:
            return self._client.record_sets.get(*self._place, self._name, "TXT", **HTTP)
        except ResourceNotFoundError:
            return None


drive(Client)
