"""The ACME directory: URLs of a server's resources, and its metadata (RFC 8555 §7.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from certwright.acme.protocol import reading
from certwright.acme.protocol.errors import NotAcme, checked
from certwright.acme.protocol.messages import Action, Flow, Request
from certwright.acme.protocol.origins import origin_of
from certwright.kit.outgoing import place_of


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory. `renewal_info` is empty if the server lacks RFC 9773, `profiles` if it has none."""

    url: str
    new_nonce: str
    new_account: str
    new_order: str
    revoke_cert: str = ""
    key_change: str = ""
    renewal_info: str = ""
    terms_of_service: str = ""
    website: str = ""
    caa_identities: tuple[str, ...] = ()
    external_account_required: bool = False
    profiles: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, object] = field(default_factory=dict, repr=False)
    origins: frozenset[str] = field(init=False, repr=False)
    """The origins of the directory and of the URLs in it: requests go to no others."""

    urls: frozenset[str] = field(init=False, repr=False)
    """The URLs in it."""

    def __post_init__(self) -> None:
        """Compute `origins` and `urls`."""
        urls = {self.new_nonce, self.new_account, self.new_order}
        urls |= {self.revoke_cert, self.key_change, self.renewal_info} - {""}
        object.__setattr__(self, "urls", frozenset(urls))
        object.__setattr__(self, "origins", frozenset(map(origin_of, (self.url, *urls))) - {""})

    def serves(self, url: str) -> bool:
        """Whether the URL belongs to this server."""
        return origin_of(url) in self.origins


def fetch_directory(url: str) -> Flow[Directory]:
    """Fetch the directory at `url`. Raises `NotAcme` if the response is not a directory."""
    response = checked((yield Request(Action.DIRECTORY, "GET", url)))
    content = reading.read_object(response, "an ACME directory")
    meta = content.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    missing = [name for name in ("newNonce", "newAccount", "newOrder") if not reading.text(content, name)]
    if missing:
        lacks = f"it has no {', '.join(missing)}"
        raise NotAcme(f"{place_of(url)} is not an ACME directory: {lacks}; check the URL with your CA")
    profiles = meta.get("profiles")
    return Directory(
        url=url,
        new_nonce=content["newNonce"],
        new_account=content["newAccount"],
        new_order=content["newOrder"],
        revoke_cert=reading.text(content, "revokeCert"),
        key_change=reading.text(content, "keyChange"),
        renewal_info=reading.text(content, "renewalInfo"),
        terms_of_service=reading.text(meta, "termsOfService"),
        website=reading.text(meta, "website"),
        caa_identities=reading.texts(meta, "caaIdentities"),
        external_account_required=meta.get("externalAccountRequired") is True,
        profiles={k: str(v) for k, v in profiles.items()} if isinstance(profiles, dict) else {},
        raw=content,
    )
