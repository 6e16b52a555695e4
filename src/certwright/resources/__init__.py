"""Our kinds: what every field means, its default and its validation; the CRDs.

May import:     kube/api, kit, kube/util
Does not hold:  rules that read another object (go to controllers); parsing of certificates (goes to pki)
"""
