"""The API client: transports, credentials, reflectors, informers and their caches.

May import:     kube/api, kube/util
Does not hold:  decisions (go to controllers); retries of work (go to kube/runtime)
"""
