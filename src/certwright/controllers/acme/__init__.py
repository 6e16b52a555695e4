"""Orders and Challenges: what an ACME certificate waits for, as objects that can be read.

| module | wakes on | writes | next |
|---|---|---|---|
| orders | Order, its Challenges, its issuer, time | Challenges; Order.status | signing |
| challenges | Challenge, a check that has ended, a free slot, time | Challenge.status | orders |

May import:   engine, issuers, acme, client, resources, pki, kit
Does not hold:  JSON Web Signatures, HTTP (acme/protocol); DNS updates, listeners (acme/solvers)
Modules:      orders, ordering (what is said to the server), needed (which Challenges), choice (of a solver),
              announcing (the time of the next step), naming, identifiers (compared as DNS does), provenance
              (which objects are acted on), refill (from an Order of before), request_orders (the Order of a
              request); challenges, work (what is remembered of one),
              precedence (who goes first), slots (who may be proven now), checks (is the proof seen?), pace
              (of a server's verdicts), solving (the solver of a spec), webhook_calls (to DNS webhooks),
              listeners (for CAs), ways (issuer and account), finding (the way of each), clients (of this
              process), traffic (counts what is asked), ledger (what CAs allow), shared_ledger (by all),
              sparing (of a CA that fails),
              renewal_office (asks when to renew), revoking, revoked (on demand), wiring
"""
