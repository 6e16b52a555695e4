"""Backoff, the circuit breakers of issuers, and their recovery after a restart.

    backoff                                    when one Certificate that has failed is attempted again
    breaker, _decisions, _state                one breaker: what happens; its questions (pure); what it stores
    tries, in_flight, probing, waiting_list    parts of that state
    circuits, applicants                       all breakers; who asks at them
    breaker_records, recovery                  what a restart and other replicas know of them
    gate                                       the controllers' side of all this

May import:     what controllers may
Does not hold:  what is retried
"""
