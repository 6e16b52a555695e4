"""MEMORY: bytes under keys with revisions, durable and watchable.

May import:   kit
Never holds:  knowledge of kinds (it goes to resources); HTTP (to apiserver)
Modules:      contract, decide, overlay, log (the window of recent events), pages, fanout, memory, sqlite,
              sqlite_file, sqlite_writer
"""
