"""What was handed in, by whom, and put on the trusted notebook."""
