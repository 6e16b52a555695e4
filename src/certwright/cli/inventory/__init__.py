"""The inventory of certificates: what `certwright expiring` reads, and how it prints that.

May import:     what the rest of the command line may
Does not hold:  the command's options (go to cli/commands); the scan of a TLS server (goes to kit)
"""
