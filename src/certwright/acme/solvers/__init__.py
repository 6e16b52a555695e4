"""Solvers present a challenge where the CA validates it; self-checks look for it as the CA does.

May import:     acme/protocol, pki, kit, kube/client (connections), kube/util
Does not hold:  look-ups of credentials (values are passed in); scheduling (goes to controllers)
"""
