"""The `venafi` issuer: CyberArk Certificate Manager, self-hosted (TPP), SaaS (Cloud), and NGTS.

    calls       JSON over HTTPS: statuses and documented error texts as exceptions
    settings    a spec and its Secrets as values
    tokens      one access token for each issuer, for its lifetime
    policies    the policy of a zone, and the field of a request that breaks it
    products    the contract of the three products: read the zone, place an order, fetch the certificate
    tpp, saas   the products
    sessions    one product client, token and zone policy for each issuer
    orders      one CertificateRequest: its order, and which orders this process has placed
    issuer      the contract of issuers: check and sign

May import:     issuers/contract, pki, resources, kit, kube/util
Does not hold:  connections (kit/https), look-ups of Secrets, the circuit breaker

Source: cert-manager `pkg/issuer/venafi`; the Web SDK of Certificate Manager Self-Hosted, and the API of
Certificate Manager SaaS. docs/venafi.md explains it for users.
"""
