"""The dashboard: pages at /ui/ that show whether every certificate is all right, if not why, and what is
next.

Pages are rendered on the server from templates; without JavaScript everything works but live changes. `Site`
answers requests; the process around it (`app/dashboard.py`) passes an `Access`, which authenticates callers
and reads the API as each of them. Loaded at the first request below /ui/.

May import:     diagnosis, kube/client, kube/api, kube/util, resources, pki, kit
Does not hold:  authentication and authorization (go to app and the API server), words of diagnoses (go to
                diagnosis), decisions about certificates (go to controllers)
Modules:        access (what the process provides), sessions (cookies, one-time links, form tokens), index
(one row for each certificate, kept up to date), overview (the first page), site (routes, headers, rendering),
live (changes while a page is open)
"""
