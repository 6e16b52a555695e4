"""REACH: everything that uses the API, from one GET to a local copy that stays fresh.

May import:   resources, kit
Never holds:  decisions (they go to controllers); retries of work (to engine)
Modules:      transport, local, https, kubeconfig, kubeconfig_file, login, plugin (how to
              reach a server, and who we are there), throttle (how often),
              rest, listing, watch (single requests), discovery (which kinds there are),
              reflector, cache, informer (the local copy), packed, press (in little memory),
              partial, selective, names (of few objects of very many)
"""
