"""General tools of the Kubernetes half: clock, files, tasks, encodings, caches.

May import:     nothing of ours
Does not hold:  anything that knows what an API object is (goes to kube/api)
"""
