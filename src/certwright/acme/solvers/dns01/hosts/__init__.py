"""DNS-01 by the APIs of DNS hosts: one module for each, and what they share.

May import:     acme/solvers, kit, kube/util
Does not hold:  manifests and Secrets (controllers/acme/dns_hosts turns them into settings), the self-check
"""
