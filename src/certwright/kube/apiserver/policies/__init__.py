"""ValidatingAdmissionPolicies and their bindings, compiled: what they match, and their expressions.

May import:     webhooks and below
Does not hold:  enforcement (goes to admission), defaults and validation of the kinds (go to kinds)
"""
