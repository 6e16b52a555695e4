"""Issuers: check an issuer and sign an approved request, one module per kind of issuer.

May import:     acme, pki, resources, kube/api, kit, kube/util
Does not hold:  an API client (callers pass functions); status writes (go to controllers/requests)
"""
