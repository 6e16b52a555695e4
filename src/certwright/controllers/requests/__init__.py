"""CertificateRequests and CertificateSigningRequests: approval, issuer look-up, signing.

May import:     what controllers may
Does not hold:  signatures (go to issuers)
"""
