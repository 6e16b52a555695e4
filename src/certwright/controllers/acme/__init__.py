"""Orders and Challenges: the state of an ACME issuance, as objects that users can read.

| module | wakes on | writes | next |
|---|---|---|---|
| orders | Order, its Challenges, its issuer, time | Challenges; Order.status | signing |
| challenges | Challenge, a self-check that has ended, a free slot, time | Challenge.status | orders |
| responses | Challenge | responses of this process's listeners | challenges |

May import:   what controllers may
Does not hold:  JSON Web Signatures, HTTP (acme/protocol); DNS updates, listeners (acme/solvers)
Modules:      orders (the state machine), order_state (kept in memory), order_requests (to the server),
              order_challenges, challenge_plan (which they are), choice (of a solver), announcing (the time of
              the next step), pause, naming, identifiers (compared as DNS does), provenance (which objects
              are acted on), order_reuse
              (certificates of earlier Orders), request_orders (the Order of a request); challenges,
              challenge_decisions, challenge_steps, challenge_state (likewise), challenge_solving (solvers and
              self-checks), priorities (of the work queues), scheduler (of slots at the CA), self_checks, pace
              (of a server's validations), solver_lookup and solver_factory (the solver of a Challenge),
              webhook_calls (to DNS webhooks), challenge_origin, last_names (which enqueue an Order),
              listeners (for CAs), responses (of every replica), resolved_issuer (issuer and account),
              issuer_resolution (of references),
              clients (of this process), client_metrics, rate_limits (of CAs), order_usage (what Orders use of
              them), shared_ledger (of one CA, in its ConfigMap), circuit_gate (for a CA that fails),
              caa_gate, ari_poller (renewal information), issuer_queries (beside Orders), account_secrets,
              account_limits, revoking (on demand), setup (wiring)
"""
