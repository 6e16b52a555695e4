"""FACE: the same objects as web pages. Empty until the dashboard is built.

May import:   client, resources, pki, kit
Never holds:  private access of any sort (what it shows, the command line can fetch)
Modules:      none yet
"""
