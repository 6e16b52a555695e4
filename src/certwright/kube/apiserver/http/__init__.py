"""The HTTP face: connections, TLS, deadlines, flow control, priority and fairness.

May import:     auth and below
Does not hold:  what a request does (goes to verbs)
"""
