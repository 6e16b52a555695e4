"""The `vault` issuer: has HashiCorp Vault or OpenBao sign with its PKI engine.

    api         the HTTP calls: health, login, token, sign; answers and errors as types
    settings    what a spec and its Secrets stand for: server, TLS, authentication method
    methods     the authentication methods: which login request each sends
    aws         the AWS method
    sessions    one HTTP client and one token for each issuer, for the lifetime of the token
    issuer      the contract of issuers: check and sign

May import:     issuers/contract, pki, resources, kit, kube/util and kube/api
Does not hold:  connections (kit/https), look-ups of Secrets, the circuit breaker

Source: cert-manager `internal/vault/vault.go`, `pkg/issuer/vault`; the HTTP API of Vault and OpenBao.
"""
