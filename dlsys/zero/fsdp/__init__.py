"""Stage 3 as PyTorch's FSDP does it: a module whose weights are whole only while they are used."""
