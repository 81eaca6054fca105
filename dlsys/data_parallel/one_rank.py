"""Data parallelism, as one rank runs it: a ladder of three, each right, each faster than the last.

What grew out of it, with unused and frozen parameters, buffers and hooks, is `ddp.py`.
Li et al. (2020), PyTorch Distributed.
"""

import torch


def average_each(comm, model) -> None:
    """After backward, one all-reduce for each gradient."""
    for p in model.parameters():
        p.grad = comm.all_reduce(p.grad, "mean")


def into_buckets(model, bucket_bytes: float) -> list[list]:
    """Parameters in the order in which backward reaches them, cut where a bucket is full."""
    buckets: list[list] = []
    full = True
    for p in reversed(list(model.parameters())):
        if full:
            buckets.append([])
        buckets[-1].append(p)
        full = sum(q.nbytes for q in buckets[-1]) >= bucket_bytes
    return buckets


def send(comm, bucket):
    """Begin to average the gradients of a bucket, laid end to end."""
    flat = torch.cat([p.grad.flatten() for p in bucket])
    return comm.all_reduce(flat, "mean", async_op=True)


def receive(bucket, handle) -> None:
    """Wait for the means, and put them where the optimizer looks."""
    parts = handle.wait().split([p.numel() for p in bucket])
    for p, part in zip(bucket, parts, strict=True):
        p.grad.copy_(part.view_as(p))


def average_buckets(comm, model, bucket_bytes: float) -> None:
    """After backward, one all-reduce for each bucket."""
    for bucket in into_buckets(model, bucket_bytes):
        receive(bucket, send(comm, bucket))


class Overlapped:
    """Sends a bucket as soon as its last gradient is there, while backward goes on."""

    def __init__(self, comm, model, bucket_bytes: float):
        self.comm, self.syncs = comm, True
        self.buckets = into_buckets(model, bucket_bytes)
        self.ready: set = set()
        self.handles: list = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.has_gradient)

    def has_gradient(self, p) -> None:
        """Autograd calls this when the gradient of p is complete."""
        if not self.syncs:  # a micro-batch that is not the last
            return
        self.ready.add(p)
        for bucket in self.buckets[len(self.handles) :]:  # in one order, on all ranks
            if not self.ready.issuperset(bucket):
                break
            self.handles.append(send(self.comm, bucket))

    def finish(self) -> None:
        """After backward, wait for what is on its way."""
        for bucket, handle in zip(self.buckets, self.handles, strict=True):
            receive(bucket, handle)
        self.ready, self.handles = set(), []
