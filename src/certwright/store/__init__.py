"""MEMORY: bytes under keys with revisions, durable and watchable.

May import:   kit
Never holds:  knowledge of kinds (it goes to resources); HTTP (to apiserver)
Modules:      contract, decide, overlay, log (the window of recent events), pages, fanout, turns, stand_ins
              (encoding before the revision is known), memory, sqlite, sqlite_file, sqlite_writer; and, with
              grpcio: etcd, etcd_client, etcd_messages, etcd_rows (how rows lie there), etcd_listing,
              etcd_feed (what others write), etcd_compaction
"""
