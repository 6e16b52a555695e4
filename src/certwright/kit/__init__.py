"""TOOLS: what would serve any program.

May import:   nothing of ours
Never holds:  the words *certificate*, *resource*, *issuer* (they go to the room that owns them)
Modules:      clock, cron, backoff, buckets (how often something may happen), durations, ids, exchange, files,
              tasks, loop (the fastest one), loop_turns (of many tasks), workshop, side_loop, programs (of the
              user's), proxies (of the environment), recent (answers remembered), memo (of functions of
              texts), made_once (attributes), lru (what was asked for last), decoders (typed data), logs,
              gates, rfc4514, texts, exposition (metrics as text), outgoing (rules for servers that objects
              name), http_words (of their errors), pages (for probes and scrapers), memory (given back),
              unverified (TLS)
"""
