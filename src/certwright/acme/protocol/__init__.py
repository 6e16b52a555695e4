"""RFC 8555, 8737, 8738 and 9773: requests, signatures, nonces, accounts, orders.

May import:     pki, kit, kube/util
Does not hold:  solvers (they import the protocol, never the reverse); waiting and retries (go to controllers)
"""
