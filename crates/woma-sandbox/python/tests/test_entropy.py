"""Renewal of the random state that libraries create at import."""

from __future__ import annotations

import random

import numpy
import pytest
from _woma_kernel import entropy

KINDS = [numpy.random.PCG64, numpy.random.PCG64DXSM, numpy.random.MT19937]


@pytest.fixture(autouse=True)
def forget():
    yield
    for remembered in (
        entropy._plain,
        entropy._numpy,
        entropy._twisters,
        entropy._congruential,
    ):
        remembered.clear()


def drawn(generator: numpy.random.Generator) -> list[float]:
    return [*generator.random(4), *generator.integers(1000, size=3, dtype="uint32")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_address", [True, False], ids=["by address", "by state"])
def test_a_generator_is_renewed(kind, by_address, monkeypatch):
    if not by_address:
        monkeypatch.setattr(entropy, "_locate", lambda _generator: False)
    generator = numpy.random.Generator(kind())
    generator.integers(9, dtype="uint32")  # leaves half a number behind
    twin = numpy.random.Generator(kind())
    twin.bit_generator.state = generator.bit_generator.state
    entropy.find()
    entropy.renew()
    assert drawn(generator) != drawn(twin)
    # What it draws is its own, and what it was is not in it any more.
    state = generator.bit_generator.state["state"]
    assert str(state) != str(twin.bit_generator.state["state"])
    assert all(0 <= number < 1 for number in generator.random(1000))
    assert abs(generator.random(10_000).mean() - 0.5) < 0.05


def test_states_are_found_by_address():
    """Otherwise each session costs more memory."""
    generators = [numpy.random.Generator(kind()) for kind in KINDS]
    entropy.find()
    assert not entropy._numpy
    assert len(entropy._twisters) >= 1
    assert len(entropy._congruential) >= 2
    assert generators


def test_an_increment_stays_odd():
    generators = [numpy.random.Generator(numpy.random.PCG64()) for _ in range(50)]
    entropy.find()
    entropy.renew()
    assert all(one.bit_generator.state["state"]["inc"] % 2 == 1 for one in generators)


def test_the_global_generators_are_renewed():
    states = numpy.random.get_state()[1].copy(), random.getstate()
    entropy.find()
    entropy.renew()
    assert (numpy.random.get_state()[1] != states[0]).any()
    assert random.getstate() != states[1]
    assert 0 <= numpy.random.rand() < 1


def test_a_fixed_seed_is_kept():
    mine = numpy.random.default_rng(5), numpy.random.RandomState(7), random.Random(3)
    entropy.find()
    entropy.renew()
    assert drawn(mine[0]) == drawn(numpy.random.default_rng(5))
    assert mine[1].rand() == numpy.random.RandomState(7).rand()
    assert mine[2].random() == random.Random(3).random()


def test_a_second_call_does_nothing():
    generator = numpy.random.default_rng()
    entropy.find()
    entropy.renew()
    before = generator.bit_generator.state
    entropy.renew()
    assert generator.bit_generator.state == before
