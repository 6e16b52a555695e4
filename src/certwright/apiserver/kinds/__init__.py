"""The kinds that are there before any CustomResourceDefinition: schemas, defaults, rules, columns.

May import:   what apiserver may
Never holds:  our own six kinds (they are CustomResourceDefinitions, made in resources)
Modules:      builtin, core_columns, core_schemas, core_services, core_strategies, events, kind_columns,
              messages, native, native_lists, native_openapi, native_scalars, network_kinds, quantities,
              rbac_kinds, registration_kinds, signing_requests
"""
