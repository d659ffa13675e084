"""The command line: ``pyptox tune | explain | check | hardware | validate | phases | pmu``."""

from ._app import main as main
