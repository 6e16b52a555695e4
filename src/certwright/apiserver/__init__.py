"""DOOR: HTTP in front of the store, as Kubernetes' API server speaks it.

May import:   store, resources, pki, kit
Never holds:  outgoing calls (but for admission/webhook_client), signing of requests (it goes to issuers),
              scheduling (to engine)
Modules:      server (the handler), routes, dispatch (to the verbs), paths (of no resource), backend (what the
              verbs share), objects (rows and bytes), json_values, registry, definitions, features, refusals
              (no such path, method, form), fairness and fair_queues (who is answered now) · https, protocol,
              listener, connections (their limits), sending, unread (what clients have not read) and wire (the
              HTTP face), serving (its own TLS identity), own_service (where it is), ensuring (objects that it
              wants to be there), elsewhere (groups that other servers serve), health, metrics, encryption (of
              Secrets on the disk) · and closets: verbs, ownership, schemas, crds, kinds, users, admission,
              representations, background
"""
