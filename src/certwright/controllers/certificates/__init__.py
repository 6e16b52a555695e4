"""Certificate controller: the steps from a Certificate to its Secret, and from there to the next renewal.

May import:     what controllers may
Does not hold:  a step that imports another step: they communicate through the object
"""
