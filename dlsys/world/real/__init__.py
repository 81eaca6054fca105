"""Ranks that are processes of torch.distributed: forked here, or started by torchrun or others."""
