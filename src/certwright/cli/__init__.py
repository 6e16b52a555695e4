"""FACE: words typed, client calls, words printed.

May import:   client, resources, pki, kit, and app (serve, controllers and run start what it wires;
              backup and restore work where no server runs)
Never holds:  decisions about certificates (they go to controllers); private ways into the server (what
              is shown here, any client can fetch)
Modules:      main (the program, its commands loaded when they are asked for), errors, options,
              access (finding the server), sources (manifest files), applying (create or change one object),
              merge (the three-way merge), hints (what to do about a refused field),
              facts (what is known about one certificate), story (why it is as it is, in a sentence),
              proofs (what to do about one that an ACME server would not see), deciding (approval and denial),
              targets (which objects the words mean), following (one object as it changes),
              mirror (a live copy of what belongs to certificates), export (Secrets as files),
              overview and progress (how certificates come on), running (the life of run),
              daemon (the signals that end a long-running command, and the end itself),
              acme_flags, cluster_flags, etcd_flags, fairness_flags, policy_flags (flags of some commands),
              backing (what backup and restore share),
              tables, words, sections, insides (how things are printed),
              and one module per command: apply, approve, backup, controllers, crds, delete, deny, describe,
              encryption, get, inspect, limits, renew, restore, revoke, run, serve, status, version, wait
"""
