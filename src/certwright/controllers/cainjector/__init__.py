"""CA bundles in webhook configurations, CRDs and APIServices, as cert-manager's cainjector.

May import:     what controllers may
Does not hold:  the annotations of Ingresses (go to controllers/shims)
"""
