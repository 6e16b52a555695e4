"""`certwright setup`: the steps that set up a machine, and their removal.

May import:     what cli may
Does not hold:  the options (go to commands/setup.py)
"""
