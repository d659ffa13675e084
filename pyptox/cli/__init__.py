"""The command line: ``pyptox tune | explain | check | simulate | what-if | graph | validate | capture | ...``."""

from ._app import main as main
