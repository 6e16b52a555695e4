"""The controller runtime: work queue, workers, requeueing, leases, Events, status commits.

May import:     kube/client, kube/api, kube/util
Does not hold:  what a controller decides (goes to controllers)
"""
