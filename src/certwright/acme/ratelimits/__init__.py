"""Rate limits of a CA: published limits, and a ledger of what is used.

May import:     pki, kit, kube/util
Does not hold:  our resources, I/O (go to controllers/acme/rate_limits)
"""
