"""The addresses of this machine."""

import socket

import pytest

from certwright.app import tls_identity

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
           |-- 169.254.1.1
              /32 host LOCAL
Local:
           |-- 192.0.2.2
              /32 host LOCAL
"""
IF_INET6 = """fe8000000000000000fc00fffe000001 04 40 20 80     eth0
20010db8000000000000000000000002 04 40 00 80     eth0
20010db800000000abcd000000000003 04 40 00 01     eth0
00000000000000000000000000000001 01 80 10 80       lo
"""


def test_addresses_that_others_can_use_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {tls_identity._IPV4: FIB_TRIE, tls_identity._IPV6: IF_INET6}
    monkeypatch.setattr(tls_identity, "_text", texts.get)
    assert tls_identity.own_addresses() == ("192.0.2.2", "2001:db8::2")


def test_this_machine_can_listen_on_each_of_its_addresses() -> None:
    for address in tls_identity.own_addresses():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((address, 0))
