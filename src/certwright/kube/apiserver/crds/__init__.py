"""CustomResourceDefinitions: validation, status, versions and conversion, served resources.

May import:     verbs and below
Does not hold:  the objects of such a resource (go to verbs)
"""
