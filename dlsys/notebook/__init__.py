"""What chapters use to show and explore, and the Sphinx extension that builds the book."""
