"""TONGUE: RFC 8555 itself, and making challenges visible.

May import:   pki, kit
Never holds:  our resources (they belong to controllers)
Modules:      protocol/ (directory, nonce, JWS, account, order, …), solvers/ (make a challenge visible),
              limits/ (what a CA allows, and what of it has been used)
"""
