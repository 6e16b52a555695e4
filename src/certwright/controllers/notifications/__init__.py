"""What is worth a notification, what was reported before, and when it is reported again.

May import:     controllers/cache, notifications, resources, kube
Does not hold:  the transports and the operator's file (go to notifications)
"""
