"""The forms an answer can have: tables, protobuf, YAML; and what there is: discovery, OpenAPI.

May import:   what apiserver may
Never holds:  which objects are in the answer (to verbs)
Modules:      ages, discovery, encodings, negotiation, openapi, openapi_names, openapi_operations,
              openapi_proto, openapi_schemas, openapi_v2, openapi_v3, other_forms, protobuf,
              protobuf_decode, protobuf_encode, protobuf_fields, protobuf_scalars, protobuf_wire, tables
"""
