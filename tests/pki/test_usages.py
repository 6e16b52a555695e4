"""Key usages by their names."""

from __future__ import annotations

import pytest

from certwright.pki import usages
from certwright.pki.errors import BadUsage
from certwright.resources.certificate import KEY_USAGES


def test_the_table_has_every_usage_that_a_spec_can_name() -> None:
    assert set(usages.USAGES) == set(KEY_USAGES)
    assert len(usages.USAGES) == 23


@pytest.mark.parametrize("name", KEY_USAGES)
def test_each_usage_is_found_again_under_its_own_or_its_first_name(name: str) -> None:
    with_needed = (name, "key agreement") if name.endswith("cipher only") else (name,)
    names = usages.names_of(*usages.extensions(with_needed))
    assert frozenset(names) == usages.canonical(with_needed)
    first = {"signing": "digital signature", "s/mime": "email protection"}.get(name, name)
    assert first in names


def test_without_usages_the_default_ones_are_meant_and_a_ca_signs_certificates() -> None:
    assert usages.complete((), is_ca=False) == ("digital signature", "key encipherment")
    assert usages.complete((), is_ca=True) == ("digital signature", "key encipherment", "cert sign")
    assert usages.complete(("cert sign",), is_ca=True) == ("cert sign",)


def test_an_extension_that_would_be_empty_is_left_out() -> None:
    assert usages.extensions(("server auth",))[0] is None
    assert usages.extensions(("cert sign",))[1] is None


def test_an_unknown_usage_is_refused_by_its_name() -> None:
    with pytest.raises(BadUsage, match='"washing up"'):
        usages.extensions(("washing up",))


def test_encipher_only_needs_key_agreement() -> None:
    with pytest.raises(BadUsage, match="key agreement"):
        usages.extensions(("encipher only",))
