"""Forms of a response: tables, YAML, protobuf; and discovery.

May import:     protobuf, model, base
Does not hold:  which objects a response has (goes to verbs)
"""
