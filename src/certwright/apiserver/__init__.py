"""DOOR: HTTP in front of the store, as Kubernetes' API server speaks it.

May import:   store, resources, pki, kit
Never holds:  outgoing calls (but webhook_client, to configured webhooks), signing (it goes to issuers),
              scheduling (to engine)
Modules:      server (the handler), routes, negotiation (which form), backend (what verbs share) · reads,
              creates, verbs (update, patch), deletes, shaping (of updates), patch, strategic, bodies,
              metadata, managed (managedFields), apply (server-side), fields_set, fields_type, fields_walk,
              fields_merge, admission, objects (rows and bytes), forms, matching, selectors, paging, watch ·
              namespaces, namespace_contents, gc, owner_warnings, termination, remains, aggregation, expiry (what
              goes on behind) · asgi (the socket), wire (the way out),
              health, serving (its own TLS identity) · definitions, registry, builtin, core_columns,
              core_schemas, core_strategies, core_services, kind_columns, events, network_kinds, rbac_kinds,
              registration_kinds, signing_requests, messages (fields of built-in kinds), native,
              native_scalars, native_lists, native_openapi · crd, crd_rules, crd_structural, crd_validations, crd_versions,
              field_paths, scale, conversion, names, schema, schema_check, schema_embedded, schema_errors,
              schema_formats, schema_ratchet, schema_scalars, schema_walk, tables, jsonpath, ages,
              discovery, openapi, openapi_names, openapi_proto, openapi_v2 · cel (its library), cel_rules
              (of a schema), cel_schema, cel_declare, cel_functions, cel_addresses, cel_formats,
              cel_numbers, cel_regex · encodings (answers other than JSON), protobuf, protobuf_fields,
              protobuf_wire, protobuf_scalars, protobuf_decode, protobuf_encode · auth, service_accounts,
              tokens, impersonation (who) · rbac, rbac_defaults, authorizer, privileges, approvals, reviews
              (may they) · chain (admission), webhooks (which, and in which order), webhook_config,
              webhook_review, webhook_conditions, webhook_client (the only one that dials out), features
              (gates), metrics
"""
