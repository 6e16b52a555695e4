"""Admission of our kinds on our own API server, in place of cert-manager's webhook.

May import:     kube/apiserver/model, resources, pki, kube/api, kit, kube/util
Does not hold:  rules about fields (go to resources); what foreign API servers enforce (resources/crd_rules)
"""
