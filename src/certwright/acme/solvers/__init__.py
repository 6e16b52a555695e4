"""Solvers present a challenge where the CA validates it; self-checks look for it as the CA does.

May import:     acme/protocol, pki, kit, kube/client (connections), kube/util
Modules:        docs/acme.md, "Who answers HTTP-01", says which one works in which mode
Does not hold:  look-ups of credentials (values are passed in); scheduling (goes to controllers)
"""
