"""Work without a request: garbage collection, namespace termination, Event expiry, token Secrets.

May import:     crds and below
Does not hold:  anything a response waits for
"""
