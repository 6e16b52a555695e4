"""`certwright setup`: what it makes on a machine, and how that is undone.

May import:     what cli may
Does not hold:  the options (go to commands/setup.py)
"""
