"""Webhook configurations and the client that calls webhooks.

May import:     requests and below
Does not hold:  when a webhook is called (goes to admission and crds)
"""
