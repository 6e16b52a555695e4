"""One module per command; its `command` implements `certwright NAME`.

May import:     what cli may
Does not hold:  code that two commands share (goes to cli)
"""
