"""REACH: everything that uses the API, from one GET to a local copy that stays fresh.

May import:   resources, kit
Never holds:  decisions (they go to controllers); retries of work (to engine)
Modules:      transport, local, https, kubeconfig (how to reach a server),
              rest, listing, watch (single requests), discovery (which kinds there are),
              reflector, cache, informer (the local copy)
"""
