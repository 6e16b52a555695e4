"""Orders and Challenges: the state of an ACME issuance, as objects that users can read.

| module | wakes on | writes | next |
|---|---|---|---|
| orders | Order, its Challenges, its issuer, time | Challenges; Order.status | signing |
| challenges | Challenge, a self-check that has ended, a free slot, time | Challenge.status | orders |
| responses | Challenge | responses of this process's listeners | challenges |

May import:   what controllers may
Does not hold:  JSON Web Signatures, HTTP (acme/protocol); DNS updates, listeners (acme/solvers)
Modules:      orders (the state machine), order_progress (kept in memory), order_requests (to the CA),
              order_challenges (the Challenges of an Order), request_orders (the Order of a request);
              challenges (the state machine), challenge_progress (solver, self-check, memory),
              challenge_queues (for slots and self-checks); provenance (which objects are acted on),
              identifiers (compared as DNS does), waits (and their texts), issuer_resolution (issuer and
              account), clients (of this process, and their metrics), rate_limits (of CAs), shared_ledger
              (of one CA, in its ConfigMap), circuit_gate (for a CA that fails), caa_gate, ari_poller
              (renewal information); solver_lookup and solver_factory (the solver of a Challenge),
              dns_hosts (their settings), preflight (solvers, before an order), routes (Ingresses and
              HTTPRoutes), listeners (for CAs), responses (of every replica); revoking and solver_check
              (on demand)
"""
