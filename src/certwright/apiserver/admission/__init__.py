"""What must hold before anyone's write is accepted: built-in rules, then webhooks.

May import:   what apiserver may
Never holds:  storage; `webhook_client` is the one place that dials out
Modules:      chain, rules, certificate_requests, webhook_client, webhook_conditions, webhook_config,
              webhook_review, webhooks
"""
