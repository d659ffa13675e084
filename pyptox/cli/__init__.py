"""The command line: ``pyptox tune | explain | check | hardware | validate``."""

from ._app import main as main
