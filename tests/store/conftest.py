"""The conformance suite's assertions explain themselves, as those of test modules do."""

import pytest

pytest.register_assert_rewrite("conformance.check_store")
