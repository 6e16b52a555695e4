"""IP addresses in texts."""

from __future__ import annotations

import ipaddress


def is_ip_address(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address, maybe with a zone."""
    # Every IPv6 address has a colon, and every IPv4 address ends with a digit. For any other text the two
    # exceptions inside `ip_address` would take longer than all other checks of a name.
    if ":" not in text and not text[-1:].isdigit():
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
