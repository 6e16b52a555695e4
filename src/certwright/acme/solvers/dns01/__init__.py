"""DNS-01: the proof is a TXT record (RFC 8555 §8.4).

May import:     acme/protocol, the solvers' contract and names, kit, kube/util
Does not hold:  look-ups of credentials (values are passed in)
"""
