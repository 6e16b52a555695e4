"""Import of the accounts, keys and certificates of other programs: `certwright import`.

`programs.py` reads the programs' folders into what `files.py` declares, `objects.py` makes API objects of
that and creates those.

May import:     what the rest of the command line may
Does not hold:  the command's options (go to cli/commands); what the controllers do with the objects
"""
