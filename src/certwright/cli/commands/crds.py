"""`certwright crds`."""

from __future__ import annotations

import click

from certwright.kube.api.yaml_writer import write_yaml
from certwright.resources.crds import custom_resource_definitions


@click.command(short_help="Print the CustomResourceDefinitions for a real Kubernetes cluster.")
def command() -> None:
    """Print the CustomResourceDefinitions as YAML, for a Kubernetes cluster: cert-manager's and issuer sets'.

    After that, `certwright controllers --kubeconfig FILE` issues certificates in that cluster.

    \b
    Example:
      certwright crds | kubectl apply --server-side -f -
    """
    click.echo("---\n".join(write_yaml(definition) for definition in custom_resource_definitions()), nl=False)
