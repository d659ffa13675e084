"""Attribution adds up, and agrees with finite differences."""

import pytest

import pyptox.lang as pl
from pyptox.cost import Options, predict
from pyptox.cost._attribute import attribute
from pyptox.hardware import a2a3
from pyptox.kernels import matmul_staged


@pytest.mark.parametrize("sync", ["auto", "manual"])
def test_attribution(sync):
    chip, options = a2a3(), Options(warm=4, sync=sync)
    specs = matmul_staged.specs(pl.spec((1152, 2048), "fp16"), pl.spec((2048, 2048), "fp16"))
    values = matmul_staged.configuration({"stages": 2})
    shapes = {n: s.shape for n, s in specs.items()}
    shares = attribute(matmul_staged, specs, values, chip, options)

    def time(**changed):
        return predict(matmul_staged, specs, shapes, values, chip.replace(**changed), options).time_us

    assert sum(shares.values()) == pytest.approx(time(), rel=1e-6)
    for name in ("load_byte", "hbm_us", "right_byte", "launch_us", "barrier"):
        c = getattr(chip.times, name)
        slope = (time(**{name: c * (1 + 1e-6)}) - time(**{name: c * (1 - 1e-6)})) / 2e-6
        assert shares[name] == pytest.approx(slope, rel=1e-3, abs=1e-3)
