"""X.509 as pure functions: keys, CSRs, certificates, chains and dates in; bytes and facts out.

May import:     kit, kube/util (and the cryptography and idna packages)
Does not hold:  YAML or conditions (go to resources); network or Secrets (go to issuers, acme)
"""
