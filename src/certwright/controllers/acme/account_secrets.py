"""Creates the Secrets of ACME accounts."""

from __future__ import annotations

from collections.abc import Mapping

from certwright.controllers.cache.secrets import Secrets
from certwright.issuers.contract import CreateSecret
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import AlreadyExists
from certwright.kube.client.rest import Client
from certwright.resources import names


def creator_of(client: Client, secrets: Secrets, namespace: str) -> CreateSecret:
    """A function that creates a Secret in that namespace, and caches it; an existing one stays as it is."""

    async def create_secret(name: str, data: Mapping[str, bytes]) -> Mapping[str, bytes]:
        labels = {names.FAO_LABEL: "true", names.MANAGED_BY_LABEL: names.MANAGER}
        meta = SecretMeta(name=name, namespace=namespace, labels=labels)
        try:
            made = await client.create(SECRETS, Secret(metadata=meta, type="Opaque", data=data))
        except AlreadyExists:
            made = await client.get(SECRETS, name, namespace)
        secrets.put(made)
        return made.data

    return create_secret
