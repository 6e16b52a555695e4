"""Values and names: JSON comparison, object names, field errors and paths, string formats, offloading.

May import:     kube/api, kube/util
Does not hold:  definitions of resources (go to model)
"""
