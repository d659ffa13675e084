"""The command line: ``pyptox tune | explain | check | hardware | validate | phases``."""

from ._app import main as main
