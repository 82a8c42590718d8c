from __future__ import annotations

import pytest

from tests.remote.service import any_tenant


@pytest.fixture(scope="module")
def service():
    with any_tenant() as served:
        yield served
