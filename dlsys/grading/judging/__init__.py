"""One submission: the parties that run it and talk, and the points that come of it."""
