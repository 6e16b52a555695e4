"""Import of the accounts, keys and certificates of other programs: `certwright import`.

`programs.py` reads the programs' folders into the types of `files.py`; `objects.py` makes API objects of them
and creates the objects.

May import:     what the rest of the command line may
Does not hold:  the command's options (go to cli/commands); what the controllers do with the objects
"""
