"""General tools of the certificate half: cron, rate limits, logs, metrics text, RFC 4514 names.

May import:     kube/util
Does not hold:  the words *certificate*, *resource*, *issuer* (go to the package that owns them)
"""
