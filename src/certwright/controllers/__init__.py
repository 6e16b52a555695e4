"""Controllers: compare the actual with the desired state and write the next step.

May import:     issuers, notifications, acme, resources, pki, kit, kube (not kube/apiserver, kube/store)
Does not hold:  HTTP, SQL (go to kube); what is particular to one kind of issuer (goes to issuers)
"""
