"""DNS-01: the proof is a TXT record (RFC 8555 §8.4).

May import:   acme/protocol, the solvers' contract and names, kit
Never holds:  looking up credentials (values are handed in)
Modules:      record (which name), rfc2136, webhook, check
"""
