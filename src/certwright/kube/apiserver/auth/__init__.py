"""Authentication, RBAC, impersonation, ServiceAccount tokens, escalation checks.

May import:     requests and below
Does not hold:  rules about objects (go to validation)
"""
