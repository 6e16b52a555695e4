"""MATTER: X.509 as pure functions: keys, requests, certificates, chains and dates in; bytes and facts out.

May import:   kit (and the cryptography and idna packages)
Never holds:  YAML or conditions (they go to resources); network or Secrets (they go to issuers, acme)
Modules:      errors, pem, der, keys, spki, usages, names, sans, facts, csr, certificates, signing,
              chain, match, renewal, windows, ari, temporary ·
              keystores (Java and PKCS#12), made of jks, pkcs12, rc2
"""
