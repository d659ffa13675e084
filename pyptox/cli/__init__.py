"""The command line: ``pyptox tune | explain | check | hardware | validate | phases | pmu | capture``."""

from ._app import main as main
