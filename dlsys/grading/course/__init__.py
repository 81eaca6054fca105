"""A class: every submission once, and a result with what people and lateness made of it."""
