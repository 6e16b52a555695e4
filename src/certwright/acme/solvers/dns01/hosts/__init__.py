"""DNS-01 by the APIs of DNS hosts: one module for each, and what they share.

A host is loaded with the first challenge that needs it.
"""
