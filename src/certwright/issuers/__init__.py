"""HAND: turns an approved request into a signed certificate, one module per kind of issuer.

May import:   acme, pki, resources, kit
Never holds:  a client (the caller hands over functions); status writing (it goes to controllers/signing)
Modules:      contract, selfsigned, ca, acme, acme_account (loaded with the first ACME issuer), table
"""
