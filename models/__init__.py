"""Whole models written as programs of tiled kernels.

The place for decode paths, Qwen3-14B and DeepSeek V4 among them: each is one program function that submits
kernels, and every reading of a program (run, cost, simulate, check, tune) applies to it.
"""
