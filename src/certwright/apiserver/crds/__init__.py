"""From a CustomResourceDefinition to a served resource: checks, status, versions, scale.

May import:   what apiserver may
Never holds:  the objects of such a resource (to verbs)
Modules:      conversion, crd, crd_costs, crd_rules, crd_structural, crd_validations, crd_versions, scale
"""
