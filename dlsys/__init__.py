"""Every mechanism of large-scale training as a plan: build it, price it, run it, draw it."""

__version__ = "0.1.0"
