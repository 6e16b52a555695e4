"""CEL: compile, check and evaluate validation rules and match conditions, in bounded processor time.

May import:     base
Does not hold:  schemas (they call cel)
"""
