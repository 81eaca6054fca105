"""Transformers as data: exact parameter counts and FLOPs, and a catalogue of published models."""

from dlsys.transformer.catalogue import CATALOGUE
from dlsys.transformer.spec import LatentAttention, Matrix, MixtureOfExperts, TransformerSpec

__all__ = [
    "CATALOGUE",
    "LatentAttention",
    "Matrix",
    "MixtureOfExperts",
    "TransformerSpec",
]
