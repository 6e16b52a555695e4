"""ACME (RFC 8555): protocol, solvers, rate limits.

May import:     pki, kit, kube/client (connections), kube/util
Does not hold:  our resources (go to controllers)
"""
