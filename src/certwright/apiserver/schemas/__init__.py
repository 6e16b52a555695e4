"""What an object must look like: prune, default, check, and run CEL rules, by a structural schema.

May import:   what apiserver may
Never holds:  what one kind does beside its schema (to kinds)
Modules:      cel, cel_addresses, cel_ast, cel_authz, cel_call_costs, cel_checker, cel_declare, cel_estimate,
              cel_formats, cel_functions, cel_literals, cel_numbers, cel_ranges, cel_regex, cel_meter,
              cel_replacements, cel_rewrite, cel_rules, cel_schema, cel_sizes, cel_words, field_paths,
              go_words, jsonpath, schema, schema_check, schema_embedded, schema_errors, schema_formats,
              schema_quick, schema_ratchet, schema_scalars, schema_walk
"""
