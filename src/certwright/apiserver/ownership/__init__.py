"""Who has set which field: `metadata.managedFields`, and server-side apply, which lives by it.

May import:   what apiserver may
Never holds:  how a value is checked (to schemas)
Modules:      apply, entries, fields_check, fields_merge, fields_set, fields_type, fields_walk, managed,
              member_sets, versions
"""
