"""Deliveries: certificates as files below the operator's roots, hooks, and whether servers serve them; and
the export of all certificates to one directory.

May import:     what controllers may
Does not hold:  how files are replaced (goes to kit/versioned_files.py); the flags of `--export` (go to cli)
"""
