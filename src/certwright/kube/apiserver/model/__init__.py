"""Resource definitions, the registry, rows and bytes, routes, and what the verbs share.

May import:     schemas, base
Does not hold:  behaviour of a verb (goes to verbs)
"""
