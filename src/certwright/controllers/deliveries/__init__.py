"""Deliveries: certificates as files below the operator's roots, hooks, and whether servers serve them.

May import:     what controllers may
Does not hold:  how files are replaced (goes to kit/versioned_files.py); `--export` (goes to cli)
"""
