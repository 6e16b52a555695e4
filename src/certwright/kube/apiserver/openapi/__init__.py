"""The OpenAPI documents, v2 and v3, as JSON and protobuf.

May import:     kinds and below
Does not hold:  schemas of single kinds (go to kinds)
"""
