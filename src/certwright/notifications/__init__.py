"""Notifications of people: the operator's file of destinations, the message, and its transports.

May import:     kit, kube/api (YAML), kube/util
Does not hold:  what is worth a notification, and what was reported before (go to controllers/notifier.py)
Modules:        messages (a problem, a digest), settings (the operator's file), smtp, webhook, apprise_urls
(the
                transports), destinations (which transport a destination has)
"""
