"""IssuerSets and ClusterIssuerSets: which member signs now, and whether any can.

May import:     what controllers may
Does not hold:  the choice for one request (goes to controllers/requests/members.py)
"""
