"""Why each certificate, issuer and Delivery is in its state, in one sentence, and what happens next.

The command line and the dashboard show the same facts: both take them from here. The functions work on
objects as JSON, so that the diagnosis is the same on any API server.

May import:     kube/client, kube/api, kube/util, resources, pki, kit
Does not hold:  text for terminals (goes to cli), pages (go to dashboard), decisions (go to controllers)
Modules:        certificates (the diagnosis of a certificate), related (the objects around it), orders
                (their names), status (JSON), actions (renew, approve, deny), issuers, deliveries, inventory
                (certificates at other places), words (times and counts)
"""
