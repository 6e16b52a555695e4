"""The store on etcd v3, which several API servers share. Needs the extra `etcd`.

May import:     kube/store, kube/util
Does not hold:  anything another store needs (goes to kube/store)
"""
