"""Regions, and where AWS's services are.

Source: AWS General Reference, "AWS service endpoints"; AWS SDKs and Tools Reference Guide, "Service-specific
endpoints".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from certwright.kit.aws.errors import AwsError
from certwright.kit.outgoing import quote

DEFAULT_REGION: Final = "us-east-1"
_REGION: Final = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
_SUFFIXES: Final = {"cn-": "amazonaws.com.cn", "us-iso-": "c2s.ic.gov", "us-isob-": "sc2s.sgov.gov"}


def check_region(region: str, field: str) -> str:
    """The region that a field names. Raises `AwsError` for other text: it becomes part of a host name."""
    if not _REGION.fullmatch(region):
        raise AwsError(f'{field}: "{quote(region, 60)}" is not an AWS region; write e.g. {DEFAULT_REGION}')
    return region


def region_of(environment: Mapping[str, str]) -> str:
    """The region that the environment names; empty: none. Raises `AwsError`."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := environment.get(name, ""):
            return check_region(region, name)
    return ""


def domain_of(region: str) -> str:
    """The domain of the services in the partition of a region, e.g. `amazonaws.com`."""
    return next((name for start, name in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com")


def endpoint_variables(service: str) -> tuple[str, str]:
    """The environment variables that replace the endpoint of a service (`STS`, `ROUTE_53`), the first that is
    set."""
    return f"AWS_ENDPOINT_URL_{service}", "AWS_ENDPOINT_URL"


def sts_endpoint(region: str) -> str:
    """The URL of STS in a region."""
    return f"https://sts.{region or DEFAULT_REGION}.{domain_of(region)}"
