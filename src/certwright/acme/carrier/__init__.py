"""HTTPS to ACME servers, and work with proofs, by a process of its own: a second processor beside the loop.

May import:   acme/protocol, acme/solvers, kit
Never holds:  account keys (what crosses is signed already); a TSIG key beyond the update that it came with;
              when to try again (controllers)
Modules:      frames (what the two processes say to each other), framed (an end of their socket), carrying
              (the child's end, and its work), proofs (its work with those), __main__ (the child), child (its
              life, as the parent sees it), link (the parent's end), transport, check, solver (a `Transport`,
              `Check`, `Solver` by way of the child), choice (where that pays)
"""
