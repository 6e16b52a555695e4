"""One module per command; its `command` is what `certwright NAME` runs.

May import:     what cli may
Does not hold:  code that two commands share (goes to cli)
"""
