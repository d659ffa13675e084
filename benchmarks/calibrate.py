"""Which constants fit the measured rows?

``python -m benchmarks.calibrate DIR`` prints the table and the constants.
"""

import argparse
from pathlib import Path

from pyptox.calibration import calibrate
from pyptox.hardware import PUBLISHED, a2a3
from pyptox.validation import observations


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", metavar="DIR", help="a folder of measured CSV files, as for pyptox validate")
    directory = Path(parser.parse_args().directory)
    rows = observations(directory)
    if not rows:
        parser.error(f"`DIR` must hold measured rows to fit, such as gemm_step_sweep.csv; found none in {directory}")
    fit = calibrate(a2a3().replace(**PUBLISHED), [problem for _, _, problem in rows])
    for (file, name, problem), r, out in zip(rows, fit.residuals, fit.left_out, strict=True):
        print(f"{file:16} {name:34} {problem.measured:10.1f} us {r:+8.1%} left out {out:+8.1%}")
    print(fit)


if __name__ == "__main__":
    main()
