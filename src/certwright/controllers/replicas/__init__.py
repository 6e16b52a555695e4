"""Replicas, shards, and what identifies the cluster they work for.

May import:     what controllers may
Does not hold:  the Lease protocol (goes to kube/runtime)
"""
