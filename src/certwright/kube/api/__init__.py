"""API objects: metadata, kinds, codec, core types, Status errors, YAML manifests.

May import:     kube/util
Does not hold:  I/O; certificate kinds (go to resources)
"""
