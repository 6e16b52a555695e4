"""Revisioned, durable, watchable key-value stores.

May import:     kube/util
Does not hold:  knowledge of kinds (goes to kube/api); HTTP (goes to kube/apiserver)
"""
