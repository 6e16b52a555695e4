"""General tools of the certificate half: cron, rate limits, logs, hooks, HTTPS to servers that objects name,
files that are replaced together, AWS without its SDK.

May import:     kube/api, kube/util
Does not hold:  certificates as data (go to pki), the objects of our kinds (go to resources)
"""
