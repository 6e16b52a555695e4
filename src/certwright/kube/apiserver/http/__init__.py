"""The HTTP face: connections, TLS, deadlines, flow control, priority and fairness.

May import:     model, base
Does not hold:  what a request does (goes to verbs)
"""
