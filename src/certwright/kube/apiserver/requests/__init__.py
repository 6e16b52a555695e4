"""Reading a request: bodies, options, metadata, selectors, patches.

May import:     representations and below
Does not hold:  what is done with it (goes to verbs)
"""
