"""A Kubernetes-style API server, client and controller runtime that know nothing about certificates.

May import:     nothing else of certwright
Does not hold:  our kinds, PKI, ACME; they plug in through the interfaces of apiserver/model/definitions.py
"""
