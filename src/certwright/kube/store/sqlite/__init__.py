"""The store on SQLite in WAL mode, with one writer thread and group commit.

May import:     kube/store, kube/util
Does not hold:  anything another store needs (goes to kube/store)
"""
