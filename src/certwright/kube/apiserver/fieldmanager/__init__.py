"""Field ownership (`metadata.managedFields`) and server-side apply.

May import:     kinds and below
Does not hold:  validation of values (goes to schemas)
"""
