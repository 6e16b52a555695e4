"""Settings of DNS hosts from the fields of `dns01`: one module for each host, with a function `settings`.

A module is loaded, with its host, for the first challenge that needs it.

May import:     its host in acme/solvers/dns01/hosts, resources, kit
Does not hold:  requests to the host
"""
