"""Times fall into the bucket they belong to, however long or short they are."""

from __future__ import annotations

import math

import pytest

from kudu_core.common.run.measure.histogram import BOUNDS, BUCKETS, Histogram


def where(seconds: float) -> int:
    histogram = Histogram()
    histogram.add(seconds)
    [place] = [n for n, count in enumerate(histogram.now().counts) if count]
    return place


@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_a_bucket_ends_before_its_bound(number: int) -> None:
    bound = BOUNDS[number]
    assert where(math.nextafter(bound, 0)) == number
    assert where(bound) == number + 1


@pytest.mark.parametrize("seconds, place", [(0.0, 0), (-1.0, 0), (1e-12, 0), (1e9, BUCKETS - 1)])
def test_what_is_too_long_or_too_short(seconds: float, place: int) -> None:
    assert where(seconds) == place
    assert len(BOUNDS) == BUCKETS - 1


def test_one_may_stand_for_many() -> None:
    histogram = Histogram()
    histogram.add(0.5, 64)
    histogram.add(2.0)
    times = histogram.now()
    assert (times.count, times.total_s) == (65, 34.0)


def test_quantiles() -> None:
    histogram = Histogram()
    assert histogram.now().quantile(0.5) == 0
    for seconds, times in ((0.001, 50), (0.01, 49), (10.0, 1)):
        histogram.add(seconds, times)
    times = histogram.now()
    assert 0.001 <= times.quantile(0.5) < 0.002
    assert 0.01 <= times.quantile(0.99) < 0.02
    assert 10 <= times.quantile(1.0) < 20
    histogram.add(1e6, 900)
    assert histogram.now().quantile(0.99) == BOUNDS[-1], "which is at least so long"
