"""MEMORY: bytes under keys with revisions, durable and watchable.

May import:   kit
Never holds:  knowledge of kinds (it goes to resources); HTTP (to apiserver)
Modules:      contract, decide, overlay, log (the window of recent events), pages, fanout, turns, stand_ins
              (encoding before the revision is known), memory, keyring (data keys), seal (rows on a disk),
              sweeping (all rows sealed anew), damage (rows that cannot be read), mark (a second record of a
              store's id and revision), sqlite, sqlite_file, sqlite_guard (notices that the files of an open
              store were deleted or replaced), sqlite_scan (lists), sqlite_writer,
              key_filter, sqlite_keys (what is not in the file), sqlite_sealing, sqlite_sweeping, backup_file
              (the form of a backup), dump (what one is made from), sqlite_dump, sqlite_restore; and, with
              grpcio: etcd, etcd_client, etcd_messages, etcd_rows (how rows lie there), etcd_listing,
              etcd_feed (what others write), etcd_identity (which store it is), etcd_sealing,
              etcd_compaction, etcd_dump
"""
