"""The verbs: get, list, watch, create, update, patch, delete, and subresources.

May import:     auth, validation, fieldmanager and below
Does not hold:  the socket (goes to http); work without a request (goes to background)
"""
