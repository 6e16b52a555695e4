"""The `vault` issuer: has HashiCorp Vault or OpenBao sign with its PKI engine.

    settings    what a spec and its Secrets stand for: server, TLS, authentication method
    api         the HTTP calls: health, login, token, sign; one client and one token for each issuer
    issuer      the contract of issuers: check and sign

May import:     issuers/contract and servers, pki, resources, kit, kube/util and kube/api
Does not hold:  connections (kit/https), look-ups of Secrets, the circuit breaker

Source: cert-manager `internal/vault/vault.go`, `pkg/issuer/vault`; the HTTP API of Vault and OpenBao.
"""
