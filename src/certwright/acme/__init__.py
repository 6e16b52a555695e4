"""TONGUE: RFC 8555 itself. Empty until the ACME issuer is built; the walls around it stand already.

May import:   pki, kit
Never holds:  our resources (they belong to controllers)
Modules:      protocol/ (directory, nonce, JWS, account, order, …), solvers/ (make a challenge visible)
"""
