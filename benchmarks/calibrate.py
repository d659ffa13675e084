"""Which constants fit the measured rows?

``python -m benchmarks.calibrate DIR`` prints the table and the constants.
"""

import sys

from pyptox.calibration import calibrate
from pyptox.hardware import PUBLISHED, a2a3
from pyptox.validation import observations


def main(directory: str) -> None:
    """Fit and print."""
    rows = observations(directory)
    fit = calibrate(a2a3().replace(**PUBLISHED), [problem for _, _, problem in rows])
    for (file, name, problem), r, out in zip(rows, fit.residuals, fit.left_out, strict=True):
        print(f"{file:16} {name:34} {problem.measured:10.1f} us {r:+8.1%} left out {out:+8.1%}")
    print(fit)


if __name__ == "__main__":
    main(sys.argv[1])
