"""What a request does: read, create, update, patch, delete, list, watch.

May import:   what apiserver may
Never holds:  the socket (it is in protocol, wire); what goes on without a request (to background)
Modules:      aside (long work in a thread), bodies, creates, deletes, forms, json_errors, matching, metadata,
              metadata_types, names, options, paging, patch, reads, selectors, shaping, strategic, updates,
              watch
"""
