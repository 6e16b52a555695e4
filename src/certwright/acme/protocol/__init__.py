"""RFC 8555, 8737, 8738 and 9773 as written. Empty until the ACME issuer is built.

May import:   pki, kit
Never holds:  solvers (they know the protocol, never the reverse)
Modules:      none yet
"""
