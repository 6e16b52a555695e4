"""Backoff, the circuit breaker of an issuer, and its recovery after a restart.

May import:     what controllers may
Does not hold:  what is retried
"""
