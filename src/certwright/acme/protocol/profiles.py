"""Certificate profiles that a server offers.

Source: draft-ietf-acme-profiles §4.
"""

from __future__ import annotations

from certwright.acme.protocol.client import AcmeClient
from certwright.kit.outgoing import quote


async def missing(client: AcmeClient, profile: str) -> str:
    """The reason why the profile is unavailable, as a clause; empty if the server offers it or none is set.

    Clients check the directory first, because a server without profiles would ignore the field and sign
    something else. Raises `AcmeError`.
    """
    if not profile or profile in (await client.directory()).profiles:
        return ""
    offered = (await client.directory(fresh=True)).profiles
    if profile in offered:
        return ""
    # The words of cert-manager, which its users' scripts look for, as far as the name.
    names = quote(", ".join(sorted(offered))) or "none"
    return (
        f"certificate authority does not advertise a profile with name {profile} (it has {names}); "
        "change or remove spec.acme.profile"
    )
