"""CEL libraries `ip` and `cidr`: addresses and networks.

Source: apiserver `pkg/cel/library` (ip, cidr); RFC 4291 §2.2, RFC 5952.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address

from certwright.kube.apiserver.cel.overloads import Function, Raw, member, plain

_Address = IPv4Address | IPv6Address


def _parse_ip(text: str) -> _Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        detail = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {detail}') from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _ip(text: str) -> Raw:
    return (str(_parse_ip(text)),)


def _is_ip(text: str) -> bool:
    try:
        _parse_ip(text)
    except ValueError:
        return False
    return True


def _address(ip: Raw) -> _Address:
    return ipaddress.ip_address(ip[0])


def _is_global_unicast(ip: Raw) -> bool:
    address = _address(ip)
    # Go's sense: private addresses are global, too.
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _is_link_local_multicast(ip: Raw) -> bool:
    address = _address(ip)
    if isinstance(address, IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


IP_FUNCTIONS: dict[str, list[Function]] = {
    "ip": [plain("string", gives="IP", run=_ip)],
    "isIP": [plain("string", gives="bool", run=_is_ip)],
    "ip.isCanonical": [plain("string", gives="bool", run=lambda text: str(_parse_ip(text)) == text)],
    "string": [plain("IP", gives="string", run=lambda ip: ip[0])],
    "family": [member("IP", gives="int", run=lambda ip: _address(ip).version)],
    "isUnspecified": [member("IP", gives="bool", run=lambda ip: _address(ip).is_unspecified)],
    "isLoopback": [member("IP", gives="bool", run=lambda ip: _address(ip).is_loopback)],
    "isLinkLocalMulticast": [member("IP", gives="bool", run=_is_link_local_multicast)],
    "isLinkLocalUnicast": [member("IP", gives="bool", run=lambda ip: _address(ip).is_link_local)],
    "isGlobalUnicast": [member("IP", gives="bool", run=_is_global_unicast)],
}

# --- networks ---------------------------------------------------------------------------------------------


def _cidr(text: str) -> Raw:
    address, slash, length = text.partition("/")
    wrong = f'network address parse error during conversion from string: netip.ParsePrefix("{text}")'
    if not slash:
        raise ValueError(f"{wrong}: no '/'")
    try:
        parsed = _parse_ip(address)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None
    if (
        not length.isascii()
        or not length.isdigit()
        or int(length) > parsed.max_prefixlen
        or length != str(int(length))
    ):
        raise ValueError(f'{wrong}: bad bits after slash: "{length}"')
    return str(parsed), length


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except ValueError:
        return False
    return True


def _network(cidr: Raw) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network("/".join(cidr), strict=False)


def _contains_ip(cidr: Raw, ip: Raw | str) -> bool:
    return _address(_ip(ip) if isinstance(ip, str) else ip) in _network(cidr)


def _contains_cidr(cidr: Raw, other: Raw | str) -> bool:
    outer, inner = _network(cidr), _network(_cidr(other) if isinstance(other, str) else other)
    return outer.version == inner.version and outer.overlaps(inner) and outer.prefixlen <= inner.prefixlen


def _masked(cidr: Raw) -> Raw:
    return str(_network(cidr).network_address), cidr[1]


CIDR_FUNCTIONS: dict[str, list[Function]] = {
    "cidr": [plain("string", gives="CIDR", run=_cidr)],
    "isCIDR": [plain("string", gives="bool", run=_is_cidr)],
    "string": [plain("CIDR", gives="string", run="/".join)],
    "containsIP": [
        member("CIDR", "string", gives="bool", run=_contains_ip),
        member("CIDR", "IP", gives="bool", run=_contains_ip),
    ],
    "containsCIDR": [
        member("CIDR", "string", gives="bool", run=_contains_cidr),
        member("CIDR", "CIDR", gives="bool", run=_contains_cidr),
    ],
    "ip": [member("CIDR", gives="IP", run=lambda cidr: cidr[:1])],
    "prefixLength": [member("CIDR", gives="int", run=lambda cidr: int(cidr[1]))],
    "masked": [member("CIDR", gives="CIDR", run=_masked)],
}
