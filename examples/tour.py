"""A short tour in Python: ask for a certificate, wait for it, look at it, renew it, and take it away again.

In one terminal:  certwright run examples/quickstart.yaml
In another:       .venv/bin/python examples/tour.py

The server is found by $KUBECONFIG, or in ./certwright-data.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client import kubeconfig
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_chain
from certwright.resources.certificate import Certificate, CertificateSpec, PrivateKeySpec
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES

NAME, NAMESPACE = "tour", "default"


async def tour(client: Client) -> None:
    """All stops, one after the other."""
    print("1. Certificates that are there already:")
    for certificate in (await client.list(CERTIFICATES)).items:
        print(f"   {certificate.metadata.key}, valid until {certificate.status.not_after}")

    print("2. One more:")
    wanted = Certificate(
        metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
        spec=CertificateSpec(
            secret_name="tour-tls",  # noqa: S106 - a name, not a secret
            dns_names=("tour.example.test",),
            private_key=PrivateKeySpec(algorithm="ECDSA"),
            issuer_ref=IssuerReference(name="example-ca"),
        ),
    )
    await client.create(CERTIFICATES, wanted)
    await show(client, await revision(client, 1))

    print("3. Renewed by hand, which makes a new key too:")
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "the tour asks"}
    certificate = await client.get(CERTIFICATES, NAME, NAMESPACE)
    patch = {
        "metadata": {"resourceVersion": certificate.metadata.resource_version},
        "status": {"conditions": [*certificate.status.conditions, issuing]},
    }
    await client.patch(CERTIFICATES, NAME, NAMESPACE, patch, subresource="status")
    await show(client, await revision(client, 2))

    print("4. And gone; its Secret stays until somebody deletes it:")
    await client.delete(CERTIFICATES, NAME, NAMESPACE)
    await client.delete(SECRETS, "tour-tls", NAMESPACE)


async def revision(client: Client, number: int) -> Certificate:
    """Wait until the certificate is ready in that revision, by watching it."""
    fields = f"metadata.name={NAME}"
    listing = await client.list(CERTIFICATES, NAMESPACE, fields=fields)
    for certificate in listing.items:
        if is_ready(certificate, number):
            return certificate
    watch = client.watch(CERTIFICATES, NAMESPACE, resource_version=listing.resource_version, fields=fields)
    async with aclosing(watch):
        async for batch in watch:
            for event in batch:
                if is_ready(event.object, number):
                    return event.object
    raise SystemExit("the server ended the watch; is it still running?")


def is_ready(certificate: Certificate, number: int) -> bool:
    """Whether it has been issued for the `number`th time, and is ready."""
    return certificate.status.revision == number and conditions.is_true(
        certificate.status.conditions, "Ready"
    )


async def show(client: Client, certificate: Certificate) -> None:
    """Print what is in its Secret."""
    secret = await client.get(SECRETS, certificate.spec.secret_name, NAMESPACE)
    leaf = read_chain(secret.data["tls.crt"])[0]
    print(f"   {', '.join(leaf.dns_names)}, signed by {leaf.issuer_text}, serial {leaf.serial_number:x},")
    print(f"   valid until {leaf.not_after}, renewed at {certificate.status.renewal_time}")


async def main() -> None:
    """Find the server, and walk."""
    files = kubeconfig.from_environment(os.environ.get("KUBECONFIG", ""))
    transport = kubeconfig.connect(kubeconfig.load(files or Path("certwright-data/kubeconfig")))
    try:
        await asyncio.wait_for(tour(Client(transport, user_agent="tour")), timeout=30)
    finally:
        await transport.close()


if __name__ == "__main__":
    asyncio.run(main())
