"""The dashboard: pages at /ui/ that show whether every certificate is all right, if not why, and what happens
next.

Pages are rendered on the server from templates; without JavaScript everything works but live changes. `Site`
answers requests. The process (`app/dashboard.py`) passes an `Access`, which authenticates users and reads the
API as each user. Loaded at the first request below /ui/.

May import:     diagnosis, kube/client, kube/api, kube/util, resources, pki, kit
Does not hold:  authentication and authorization (go to app and the API server), words of diagnoses (go to
                diagnosis), decisions about certificates (go to controllers)
Modules:        access (the interface to the process), sessions (cookies, one-time links, form tokens), index
                (one row for each certificate), overview (the first page), site (routes, headers, rendering),
                live (changes while a page is open)
"""
