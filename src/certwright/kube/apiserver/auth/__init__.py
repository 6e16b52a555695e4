"""Authentication, RBAC, impersonation, ServiceAccount tokens, escalation checks.

May import:     kinds and below
Does not hold:  rules about objects (go to validation)
"""
