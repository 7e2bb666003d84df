"""The stores on which the contract is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.objects.places import STAND_IN, Place, at, opened
from tests.support.objects.server import StoreServer
from tests.support.objects.servers import PROGRAMS, Servers

OWN = ("memory", "memory, generations", "s3", "gcs", STAND_IN)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """versitygw and hdfs take minutes to install: only with --long."""
    long = metafunc.config.getoption("--long")
    others = [name for name in PROGRAMS if long or name not in ("versitygw", "hdfs")]
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", [*OWN, *others], indirect=True)
    if "other" in metafunc.fixturenames:
        metafunc.parametrize("other", others)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The stores of others; each starts when it is first asked for."""
    running = Servers()
    yield running
    running.close()


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    """Our HTTP server, which speaks S3 or Google's XML API."""
    with StoreServer(request.param) as server:
        yield server


@pytest.fixture
def s3() -> Iterator[StoreServer]:
    """The same, S3 alone."""
    with StoreServer("s3") as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Place]:
    """An empty place in a store of each kind, with a client of it."""
    kind = request.param
    if kind in PROGRAMS:
        yield at(kind, *servers.of(kind))
    else:
        with opened(kind) as place:
            yield place
