"""HTTPS to ACME servers, carried by a process of its own: a second processor beside the event loop.

May import:   acme/protocol, kit
Never holds:  keys and signatures (what crosses is signed already); when to try again (controllers)
Modules:      frames (what the two processes say to each other), carrying (the child's work), __main__ (the
              child), child (its life, as the parent sees it), link (the parent's end of the socket),
              transport (a `Transport` by way of the child), choice (where that pays)
"""
