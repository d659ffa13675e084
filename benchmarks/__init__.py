"""Benchmarks of pyptox: each module answers one question and compares within one run, as JSON.

Run one with `python -m benchmarks.NAME`, all of them with `make bench`. Results go under `build_output/`.
"""
