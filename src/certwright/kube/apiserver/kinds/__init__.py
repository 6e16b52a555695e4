"""Built-in kinds: schemas, defaults, validation, columns.

May import:     policies and below
Does not hold:  certificate kinds (they are CustomResourceDefinitions)
"""
