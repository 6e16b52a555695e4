"""Our kinds: the meaning, default and validation of every field; the CRDs.

May import:     kube/api, kit, kube/util
Does not hold:  rules that read another object (go to controllers); parsing of certificates (goes to pki)
"""
