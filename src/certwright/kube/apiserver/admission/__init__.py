"""Admission of a write: built-in checks, then mutating and validating webhooks.

May import:     crds and below
Does not hold:  storage
"""
