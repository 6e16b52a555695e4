"""Google's own client; see `driven.py`."""

from __future__ import annotations

from driven import Given, drive
from google.cloud import dns
from google.oauth2 import service_account


class Client:
    """See `driven.Client`."""

    def __init__(self, given: Given) -> None:
        scope = "https://www.googleapis.com/auth/ndev.clouddns.readwrite"
        info = {**given["key_file"], "token_uri": f"{given['url']}/token"}
        credentials = service_account.Credentials.from_service_account_info(info, scopes=[scope])
        self._client = dns.Client(
            project=given["project"], credentials=credentials, client_options={"api_endpoint": given["url"]}
        )
        zones = [zone for zone in self._client.list_zones() if zone.dns_name == f"{given['zone']}."]
        self._zone = next(zone for zone in zones if not zone.name.startswith("private-"))
        self._name = f"{given['name']}."

    def add(self, value: str) -> None:
        values = self.values()
        changes = self._zone.changes()
        if values:
            changes.delete_record_set(self._zone.resource_record_set(self._name, "TXT", 60, values))
        changes.add_record_set(self._zone.resource_record_set(self._name, "TXT", 60, [*values, f'"{value}"']))
        changes.create()
        while changes.status != "done":
            changes.reload()

    def values(self) -> list[str]:
        rrsets = self._zone.list_resource_record_sets()
        return [value for rrset in rrsets if rrset.name == self._name for value in rrset.rrdatas]

    def remove(self) -> None:
        changes = self._zone.changes()
        changes.delete_record_set(self._zone.resource_record_set(self._name, "TXT", 60, self.values()))
        changes.create()


drive(Client)
