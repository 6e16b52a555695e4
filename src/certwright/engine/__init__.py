"""PULSE: queues, workers, wake-ups, retries: when something runs, never what.

May import:   client, resources, kit
Never holds:  what a certificate is (it goes to controllers)
Modules:      queue, turns (between flows), wakeups (when), idle (what can wait), loop (the workers), lease
              (which of several replicas), fence (no changes without it), commit (one write of a
              status), recorder (Events)
"""
