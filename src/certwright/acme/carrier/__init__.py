"""HTTPS to ACME servers, and looks for proofs, by a process of its own: a second processor beside the loop.

May import:   acme/protocol, acme/solvers, kit
Never holds:  keys and signatures (what crosses is signed already); when to try again (controllers)
Modules:      frames (what the two processes say to each other), carrying (the child's work), __main__ (the
              child), child (its life, as the parent sees it), link (the parent's end of the socket),
              transport (a `Transport` by way of the child), check (a `Check` by way of it), looks (those
              of the child), choice (where that pays)
"""
