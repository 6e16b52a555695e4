"""The command line: options, output, and what commands share.

May import:     kube/client, resources, pki, kit, kube/api, kube/util, and app (for what runs a process)
Does not hold:  decisions about certificates (go to controllers); private access to the server
"""
