"""Composition root: chooses implementations, wires, starts and stops them. One function per process shape.

`start_server` starts the daemon: store, API server, HTTPS, and the controllers in the same process.
`start_controllers` starts the controllers alone, against any API server.

May import:   every package but cli
Does not hold:  any `if` about the domain
Modules:      options (settings of a process, --feature-gates), opening (directory, tokens and users, port),
              stores (the store of --store), etcd, encryption (the key of the Secrets), shared_files (files
              that servers on one store share), tls_identity (the server's own certificates), metrics_tls (the
              certificates of the controllers' metrics and dashboard), dashboard (who sees it), backup, server
              (the daemon), controllers (the controllers in any process), acme_commands (revocation, the check
              of a solver), loop (the event loop)
"""

from certwright.app.backup import back_up, restore
from certwright.app.controllers import RunningControllers, send_test, start_controllers
from certwright.app.dashboard import ClusterAccess, ClusterDashboard, ClusterDashboardOptions
from certwright.app.loop import freeze_heap, run
from certwright.app.metrics_tls import CaSettings, CertificateFiles, MetricsTls
from certwright.app.opening import ADMIN
from certwright.app.options import (
    ControllerOptions,
    EtcdOptions,
    ServeOptions,
    StartError,
    lexicon_problem,
    plugin_problem,
)
from certwright.app.server import CONTROLLER, RunningServer, start_server
from certwright.controllers.acme.listeners import AcmeSettings
from certwright.controllers.deliveries.export import ExportFailed, Exports, ExportSettings
from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.controllers.replicas.shards import ClusterSettings
from certwright.controllers.shims.annotations import ShimOptions
from certwright.kit.outgoing import ServerRules
from certwright.kube.apiserver.http.fairness import InFlight
from certwright.kube.runtime.lease import LeaseTiming
from certwright.resources.operator_policy import OperatorPolicy

__all__ = [
    "ADMIN",
    "CONTROLLER",
    "AcmeSettings",
    "CaSettings",
    "CertificateFiles",
    "ClusterAccess",
    "ClusterDashboard",
    "ClusterDashboardOptions",
    "ClusterSettings",
    "ControllerOptions",
    "DeliveryOptions",
    "EtcdOptions",
    "ExportFailed",
    "ExportSettings",
    "Exports",
    "InFlight",
    "LeaseTiming",
    "MetricsTls",
    "OperatorPolicy",
    "Root",
    "RunningControllers",
    "RunningServer",
    "ServeOptions",
    "ServerRules",
    "ShimOptions",
    "StartError",
    "back_up",
    "freeze_heap",
    "lexicon_problem",
    "plugin_problem",
    "restore",
    "run",
    "send_test",
    "start_controllers",
    "start_server",
]
