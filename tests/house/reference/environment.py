"""docs/reference/environment.md: environment variables and exit statuses."""

from __future__ import annotations

from house.reference.tables import GENERATED, table

VARIABLES = {
    "KUBECONFIG": "The kubeconfig, for every command without `--kubeconfig`; several paths as for kubectl.",
    "KUBE_EDITOR": "The editor of `certwright edit`; without it `VISUAL` and `EDITOR` are used.",
    "CERTWRIGHT_ENCRYPTION_KEY": "The wrapping key of Secrets at rest, in base64; several with commas between "
    "([encryption](../encryption.md)).",
    "CERTWRIGHT_DEBUG": "`1` shows tracebacks of errors, as `certwright --debug` does.",
    "NO_COLOR": "Any value: no colours on a terminal.",
    "TERM": "`dumb`: no colours on a terminal.",
    "KUBERNETES_SERVICE_HOST": "Set by Kubernetes in a pod: where the API server is, for `certwright controllers`.",
    "KUBERNETES_SERVICE_PORT": "Set by Kubernetes in a pod: the port of the API server.",
    "AWS_REGION": "The region of AWS services, for solvers that name none (`route53`).",
    "AWS_DEFAULT_REGION": "As `AWS_REGION`, which has priority.",
    "AWS_ACCESS_KEY_ID": "Ambient credentials of AWS, with `AWS_SECRET_ACCESS_KEY`.",
    "AWS_SECRET_ACCESS_KEY": "The secret of `AWS_ACCESS_KEY_ID`.",
    "AWS_SESSION_TOKEN": "The session token of `AWS_ACCESS_KEY_ID`, if it is temporary.",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "The token that is exchanged for credentials of `AWS_ROLE_ARN`.",
    "AWS_ROLE_ARN": "The role that `AWS_WEB_IDENTITY_TOKEN_FILE` is exchanged for.",
    "AWS_ROLE_SESSION_NAME": "The name of the session of `AWS_ROLE_ARN`.",
    "AWS_EC2_METADATA_DISABLED": "`true`: no credentials are requested from EC2's metadata service.",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "Another address of EC2's metadata service.",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "Credentials of an ECS task.",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "Credentials of an ECS task or an EKS pod.",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "The token file for `AWS_CONTAINER_CREDENTIALS_FULL_URI`.",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN": "The token for `AWS_CONTAINER_CREDENTIALS_FULL_URI`.",
    "AWS_ENDPOINT_URL": "Another address of AWS's services; also `AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL_ROUTE_53`.",
    "AZURE_AUTHORITY_HOST": "Another address of Microsoft Entra ID.",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST": "Another address of Azure's instance metadata service.",
    "AZURE_FEDERATED_TOKEN_FILE": "The token of Azure's workload identity.",
    "AZURE_TENANT_ID": "The tenant of the workload identity.",
    "AZURE_CLIENT_ID": "The client of the workload identity.",
    "GOOGLE_APPLICATION_CREDENTIALS": "The key file of a Google service account (`cloudDNS` without a Secret).",
    "GCE_METADATA_HOST": "Another address of Google's metadata server.",
    "CLOUDFLARE_BASE_URL": "Another address of Cloudflare's API.",
    "DIGITALOCEAN_API_URL": "Another address of DigitalOcean's API.",
}
"""Every variable that the code reads by name; a test compares them with the source."""

STATUSES = {
    "0": "done",
    "1": "failed: the error, one sentence, is on standard error",
    "2": "wrong use: an unknown command or flag, or a value that cannot be used",
    "130": "interrupted by Ctrl-C (`128 + 2`)",
    "143": "a daemon was ended a second time by SIGTERM (`128 + 15`) before its shutdown was complete",
}

PAGE = f"""# Environment variables and exit statuses

{GENERATED}

## Which server a command uses

The first of: the flag `--kubeconfig`, the variable `KUBECONFIG`, in a pod its ServiceAccount, `certwright-data/kubeconfig`
in the current directory; for root that of the service, `/var/lib/certwright/kubeconfig`.

## Environment variables

The variables of AWS, Azure and Google are read only for solvers that have no credentials of their own, and only if the
operator allows them ([DNS providers](../dns-providers.md)).

{table(("variable", "meaning"), [(f"`{name}`", text) for name, text in VARIABLES.items()])}

## Exit statuses

{table(("status", "meaning"), [(f"`{status}`", text) for status, text in STATUSES.items()])}

`certwright export` has statuses 3 to 8 besides ([a second machine](../howto/second-machine.md)).
A command's own statuses (`run --once`, `wait`, `check`, `backup`) are 0 or 1 in this sense: 1 if a certificate is not
ready, a check fails, or an object had to be left out. `certwright diff` ends with 0 for no difference, 1 for differences,
and 2 if something failed.
"""


def page() -> str:
    """The text of the page."""
    return PAGE
