"""Settings and fixtures that every test shares."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

# Set at import, so that they also hold while test modules build their parameters.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout (captures, measured rows, notes); skips where absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the folder `shared` is not beside the checkout (looked for {folder})")
    return folder


@pytest.fixture
def standard_promotion() -> Iterator[None]:
    """Standard dtype promotion for one test: optax's Adam family raises a float to an integer step count."""
    with jax.numpy_dtype_promotion("standard"):
        yield
