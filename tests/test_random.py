"""Named randomness: numbers depend on the seed and the names, and on nothing else."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.random import derive_seed, generator, numpy_generator


def test_seeds_of_names() -> None:
    assert derive_seed(0, "client", 3) == derive_seed(0, "client", 3)
    others = [(1, "client", 3), (0, "client", "3"), (0, "client", 4), (0, 3, "client"), (0, "client3"), (0,)]
    assert len({derive_seed(*other) for other in others} | {derive_seed(0, "client", 3)}) == len(others) + 1
    assert all(0 <= derive_seed(seed, "x") < 2**63 for seed in range(1000))


def test_names_do_not_run_into_each_other() -> None:
    assert derive_seed(0, "a", "b") != derive_seed(0, "ab")
    assert derive_seed(1, 2) != derive_seed(12)


def test_draws_do_not_touch_global_states() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = (torch.randn(4, generator=generator(7, "dropout")) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(numpy_generator(7, "split").random(4), numpy_generator(7, "split").random(4))
    assert not torch.equal(first, torch.randn(4, generator=generator(8, "dropout")))
