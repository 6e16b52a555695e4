"""RFC 8555, 8737, 8738 and 9773 as written.

May import:   pki, kit
Never holds:  solvers (they know the protocol, never the reverse); waiting and trying again (controllers)
Modules:      messages (request, response, flow), problem (types of errors and what to do), errors, jws,
              reading, exchange (signed requests, nonces), origins (of a server's URLs), directory, account,
              profiles (that a server offers),
              orders, authorizations, challenges (what is shown where), certificates, revocation,
              renewal_info, transport (the contract), https (it, by aiohttp), turns (which requests take
              them), client (the driver)
"""
