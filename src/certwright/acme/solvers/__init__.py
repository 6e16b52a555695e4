"""Challenges made visible where the CA will look, taken away again, and looked at as the CA will.

May import:   acme/protocol, pki, kit
Never holds:  looking up credentials (values are handed in); who is next, and when to look again (controllers)
Modules:      contract, http01 (responder), webroot, http01_check, tlsalpn01 (listener, check), client_hello,
              names (questions to name servers), datagrams (how they go there), dns01/ (rfc2136, webhook,
              check), program (exec), checking (which check looks for what)
"""
