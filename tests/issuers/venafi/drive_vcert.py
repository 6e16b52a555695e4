"""CyberArk's own client, driven in an environment of its own: orders a certificate, or fetches one.

Reads a JSON object from stdin, and writes `{"id", "chain"}` as the last line of stdout: vcert logs there too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vcert import (
    CHAIN_OPTION_LAST,
    CSR_ORIGIN_PROVIDED,
    CertificateRequest,
    VenafiPlatform,
    venafi_connection,
)


def connect(given: dict[str, Any]) -> Any:
    """The connection of the product."""
    trust = {"verify": given["ca"], "timeout": 60}
    if given["product"] == "cloud":
        return venafi_connection(
            platform=VenafiPlatform.VAAS,
            url=given["url"],
            api_key=given["api_key"],
            http_request_kwargs=trust,
        )
    if given["product"] == "ngts":
        return venafi_connection(
            platform=VenafiPlatform.NGTS,
            url=given["url"],
            token_url=given["token_url"],
            client_id="alice",
            client_secret="secret",
            tsg_id=given["tsg"],
            http_request_kwargs=trust,
        )
    return venafi_connection(
        platform=VenafiPlatform.TPP,
        url=given["url"],
        user="alice",
        password="secret",
        http_request_kwargs=trust,
    )


def main() -> None:
    given = json.load(sys.stdin)
    connection = connect(given)
    request = CertificateRequest(
        cert_id=given.get("id"), csr=given.get("csr"), common_name=given["name"], timeout=30
    )
    request.csr_origin = CSR_ORIGIN_PROVIDED
    request.chain_option = CHAIN_OPTION_LAST
    request.use_legacy_pem = True
    if not given.get("id"):
        connection.request_cert(request, given["zone"])
    certificate = connection.retrieve_cert(request)
    print(f"\n{json.dumps({'id': request.id, 'chain': [certificate.cert, *certificate.chain]})}")


main()
