"""HTTP-01 inside a cluster: Ingresses and HTTPRoutes that lead to the listeners of the replicas.

There is no pod for a challenge. Per namespace with pending challenges there is one Service without a
selector, whose EndpointSlices name the addresses of all ready replicas (`--http01-cluster-service`), or of
this one (`--http01-cluster-address`).

May import:     what controllers may
Does not hold:  what listens (acme/solvers/http01); which challenge is answered (responses, challenges)
Modules:       objects (as JSON, pure), services (Services and their EndpointSlices, which follow the
               replicas; what is left over is removed), solver (presents and removes, edits Ingresses)
"""
