"""Kubernetes' protobuf encoding of built-in kinds.

May import:     model, base
Does not hold:  content negotiation (goes to model)
"""
