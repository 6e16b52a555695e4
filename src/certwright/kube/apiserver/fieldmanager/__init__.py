"""Field ownership (`metadata.managedFields`) and server-side apply.

May import:     requests and below
Does not hold:  validation of values (goes to schemas)
"""
