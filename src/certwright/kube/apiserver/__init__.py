"""The API server: HTTP in front of the store, as Kubernetes' own API server speaks it.

May import:     kube/store, kube/api, kube/util
Does not hold:  outgoing calls (only webhooks/client dials out), certificate kinds, scheduling
"""
