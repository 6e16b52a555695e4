"""The controllers' caches: informers, indexes, transforms, Secrets, event handlers.

May import:     what controllers may
Does not hold:  decisions
"""
