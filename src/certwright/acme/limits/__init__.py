"""How much a CA allows, and what of it has been used.

May import:   pki, kit (the closets beside it are not needed)
Never holds:  our resources, I/O (they belong to controllers/acme/ledger)
Modules:      known (limits of CAs, and reading other ones), scopes (what a limit counts: domain, set …),
              asking (an order that wants to be made), ledger (who may order now, and when the others may),
              lines (of those that wait), state (as JSON), recovery (after a restart),
              words (what a 429 says of a limit)
"""
