"""Certificates for annotated Ingresses, Gateways and ListenerSets, as cert-manager's ingress-shim.

May import:     what controllers may
Does not hold:  what solves HTTP-01 through them
"""
