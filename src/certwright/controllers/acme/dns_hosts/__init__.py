"""Settings of DNS hosts from the fields of `dns01`: one module for each host.

Each has a function `settings`, which reads the Secrets that the field names. A module is loaded, with its
host, for the first challenge that needs it.
"""
