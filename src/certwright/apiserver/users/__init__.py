"""Who asks, and may they: authentication, RBAC, impersonation, tokens, reviews.

May import:   what apiserver may
Never holds:  rules about objects (to admission)
Modules:      approvals, auth, authorizer, held, impersonation, privileges, rbac, rbac_defaults,
              reviews, secret_tokens, service_accounts, tokens
"""
