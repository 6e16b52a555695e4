"""Built-in kinds: schemas, defaults, validation, columns.

May import:     openapi, representations, protobuf, schemas, model, base
Does not hold:  certificate kinds (they are CustomResourceDefinitions)
"""
