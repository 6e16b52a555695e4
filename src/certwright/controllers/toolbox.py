"""Dependencies of all reconcilers: the API client, Events, workers, the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.commit import StatusWriter, WithStatus
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.executor import Executor

T = TypeVar("T", bound=WithStatus)


class Toolbox(msgspec.Struct, frozen=True):
    """The API client, the recorder of Events, the workers for expensive computations, and the time."""

    client: Client
    recorder: Recorder
    executor: Executor
    now: Callable[[], datetime]

    def status_of(self, informer: Informer[T]) -> StatusWriter[T]:
        """A writer of the statuses of an informer's objects."""
        return StatusWriter(self.client, informer)
