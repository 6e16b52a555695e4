"""The `venafi` issuer: CyberArk Certificate Manager, self-hosted (TPP), SaaS (Cloud), and NGTS.

    settings    a spec and its Secrets as values
    policies    the policy of a zone, and the field of a request that breaks it
    products    the contract of the three products: read the zone, place an order, fetch the certificate
    tpp, saas   the products
    orders      one issuer at its server; one CertificateRequest: its order, and which this process has placed
    issuer      the contract of issuers: check and sign

May import:     issuers/contract and servers, pki, resources, kit, kube/util
Does not hold:  connections (kit/https), look-ups of Secrets, the circuit breaker

Source: cert-manager `pkg/issuer/venafi`; the Web SDK of Certificate Manager Self-Hosted, and the API of
Certificate Manager SaaS. docs/venafi.md explains it for users.
"""
