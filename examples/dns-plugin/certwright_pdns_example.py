"""A DNS plug-in for certwright: PowerDNS. docs/dns-plugins.md explains each line."""

import json
import os
import urllib.error
import urllib.request


class TooManyRequests(Exception):
    def __init__(self, seconds: int) -> None:
        super().__init__("the API allows no more requests for now")
        self.retry_after = seconds  # All challenges with these settings wait that long.


class Plugin:
    def __init__(self, *, config: dict[str, str], secrets: dict[str, bytes]) -> None:
        # The operator names the server, not the issuer: an issuer may be written by a tenant.
        self.zones = os.environ["DNS01_PLUGIN_PDNS_URL"] + "/api/v1/servers/localhost/zones"
        self.key = secrets["apiKey"].decode().strip()
        self.ttl = int(config.get("ttl", 60))

    def has_zone(self, name: str) -> bool:
        return self.request("GET", f"/{name}.") is not None

    def add(self, zone: str, name: str, value: str) -> None:
        self.replace(zone, name, self.values(zone, name) | {value})

    def remove(self, zone: str, name: str, value: str) -> None:
        self.replace(zone, name, self.values(zone, name) - {value})

    def values(self, zone: str, name: str) -> set[str]:
        found = self.request("GET", f"/{zone}.?rrset_type=TXT&rrset_name={name}.") or {"rrsets": []}
        sets = [one for one in found["rrsets"] if one["name"] == f"{name}." and one["type"] == "TXT"]
        return {record["content"].strip('"') for one in sets for record in one["records"]}

    def replace(self, zone: str, name: str, values: set[str]) -> None:
        records = [{"content": f'"{value}"', "disabled": False} for value in sorted(values)]
        change = "REPLACE" if records else "DELETE"
        rrset = {"name": f"{name}.", "type": "TXT", "ttl": self.ttl, "changetype": change, "records": records}
        self.request("PATCH", f"/{zone}.", {"rrsets": [rrset]})

    def request(self, method: str, path: str, body: object = None) -> dict | None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-API-Key": self.key}
        request = urllib.request.Request(self.zones + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code == 429:
                raise TooManyRequests(int(error.headers.get("Retry-After", 30))) from None
            raise
