"""ACME (RFC 8555): protocol, solvers, rate limits.

May import:     pki, kit, kube/util
Does not hold:  our resources (go to controllers)
"""
