"""Put a token where the CA will look, and take it away. Empty until the ACME issuer is built.

May import:   acme/protocol, pki, kit
Never holds:  the look-up of credentials (values are passed in)
Modules:      none yet
"""
