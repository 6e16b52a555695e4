"""AWS without its SDK: signed requests, credentials and where they come from, the Security Token Service.

The SDK costs 36 MB and cannot be awaited; the calls that certwright makes need one signature and small XML.

May import:     kit, kube/util
Does not hold:  services other than STS (go to the package that uses them, e.g. acme/solvers/dns01/hosts)
"""
