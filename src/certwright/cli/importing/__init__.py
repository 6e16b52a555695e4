"""Import of the accounts, keys and certificates of other programs: `certwright import`.

`model.py` is what the readers of the programs' folders return, `objects.py` makes API objects of it and
creates those.

May import:     what the rest of the command line may
Does not hold:  the command's options (go to cli/commands); what the controllers do with the objects
"""
