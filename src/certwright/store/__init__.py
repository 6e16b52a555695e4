"""MEMORY: bytes under keys with revisions, durable and watchable.

May import:   kit
Never holds:  knowledge of kinds (it goes to resources); HTTP (to apiserver)
Modules:      contract, overlay, log (the window of recent events), fanout, memory, sqlite
"""
