"""Calls to a DNS webhook: a POST to the API group that it is served under, as cert-manager does.

Source: cert-manager `pkg/issuer/acme/dns/webhook/webhook.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from certwright.acme.solvers.contract import SolverError
from certwright.kit.outgoing import quote
from certwright.kube.api.errors import ApiError, Forbidden, NotFound, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import whole_body

_VERSION = "v1alpha1"
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_SEGMENT = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")


async def call_webhook(
    client: Client, group: str, solver: str, payload: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The answer of the solver of that group and name to a ChallengePayload. Raises `SolverError`.

    The request has the rights of the controllers, and both names come from an object that a tenant may have
    written: neither may lead to another path.
    """
    if not _GROUP.fullmatch(group) or not _SEGMENT.fullmatch(solver):
        raise SolverError(
            f'groupName "{quote(group, 80)}" and solverName "{quote(solver, 80)}" are not names that an API '
            "is served under; write the API group and the solver as the webhook's documentation names them"
        )
    path = f"/apis/{group}/{_VERSION}/{solver}"
    headers = {"content-type": "application/json"}
    try:
        answer = await client.raw("POST", path, body=json.dumps(payload).encode(), headers=headers)
        content = json.loads(await whole_body(answer))
    except Forbidden as error:
        raise SolverError(
            f"the webhook at {path} refused access: {quote(str(error))}; bind the ClusterRole of its chart "
            "to certwright's ServiceAccount, and let the webhook read the ConfigMap "
            "kube-system/extension-apiserver-authentication, by which it knows the API server"
        ) from error
    except NotFound as error:
        raise SolverError(
            f'no webhook is at {path}; install it, with its APIService "{_VERSION}.{group}", or correct '
            "groupName and solverName of the solver"
        ) from error
    except (ApiError, Unreachable, ValueError) as error:
        raise SolverError(f"the webhook at {path} cannot be called: {quote(str(error))}") from error
    return content if isinstance(content, dict) else {}
