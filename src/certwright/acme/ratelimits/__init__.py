"""Rate limits of a CA: what it allows and what has been used.

May import:     pki, kit, kube/util
Does not hold:  our resources, I/O (go to controllers/acme/rate_limits)
"""
