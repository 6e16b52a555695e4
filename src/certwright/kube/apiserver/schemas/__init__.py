"""Structural schemas: prune, default, validate, and run CEL rules.

May import:     cel, base
Does not hold:  what a kind does beside its schema (goes to kinds)
"""
