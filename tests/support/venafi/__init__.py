"""A fake of CyberArk Certificate Manager: Self-Hosted (TPP), SaaS (Cloud) and NGTS in one server over TLS.

Written from the documented calls of the Web SDK and of the SaaS API, as cert-manager and CyberArk's `vcert`
make them; `vcert` itself judges it (`tests/issuers/venafi/test_vcert.py`).
"""
