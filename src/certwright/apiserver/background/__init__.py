"""What goes on behind the answers: garbage collection, terminating namespaces, old Events, tokens in Secrets.

May import:   what apiserver may
Never holds:  anything that an answer waits for
Modules:      aggregation, api_services, dependents (who names whom as owner), expiry, gc,
              namespace_contents, namespaces, owner_warnings, remains, requests, termination, token_secrets
"""
