"""Hypothesis tries the same examples in every run, and lets each take its time: neither luck nor a busy
machine makes a run fail. `make soak` and `--hypothesis-profile=default` look for others."""

from __future__ import annotations

import os

from hypothesis import settings

if not os.environ.get("CERTWRIGHT_SOAK"):
    settings.load_profile("ci")
