"""Built-in validation of a write, before admission.

May import:     kinds and below
Does not hold:  webhooks (go to admission)
"""
