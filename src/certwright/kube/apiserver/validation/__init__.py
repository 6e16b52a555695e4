"""Built-in validation of a write, before admission.

May import:     requests and below
Does not hold:  webhooks (go to admission)
"""
