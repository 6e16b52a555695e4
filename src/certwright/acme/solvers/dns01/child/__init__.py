"""A child process that changes TXT records by third-party code: dns-lexicon or a plug-in.

Such code blocks, takes memory and may be faulty, so it never runs in the process of the controllers. A child
answers one request, read from its standard input, and ends. Its parent is `hosts/in_child.py`.

May import:     kit and kube/util where that is cheap: every start pays for it
Does not hold:  which provider an object may use (resources/operator_policy); retries, pauses (hosts/session)
"""
