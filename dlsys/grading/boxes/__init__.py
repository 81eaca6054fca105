"""Boxes that a student's code runs in."""
