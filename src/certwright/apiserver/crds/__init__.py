"""From a CustomResourceDefinition to a served resource: checks, status, versions, scale.

May import:   what apiserver may
Never holds:  the objects of such a resource (to verbs)
Modules:      crd (the kind), crd_rules, crd_versions, crd_structural, crd_openapi, crd_defaults, crd_sizes,
              crd_validations, crd_costs (what it may say) · crd_status, crd_controllers (names,
              established) · crd_definitions, crd_outline, crd_reading (what is served, how rows are
              read) ·
              conversion, other_versions (webhooks) · scale, scale_owners
"""
