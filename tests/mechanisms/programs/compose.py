"""Three steps on torch's own engines, whatever the mesh: `torchrun --nproc-per-node 4 compose.py 2 1 2`."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Layer(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def drawn() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """The model, a batch and its targets, the same on every process."""
    torch.manual_seed(0)
    return nn.Sequential(*[Layer(16) for _ in range(4)]), torch.randn(8, 16), torch.randn(8, 16)


def train(pipeline: int, data: int, tensor: int) -> None:
    mesh = init_device_mesh("cpu", (pipeline, data, tensor), mesh_dim_names=("pp", "dp", "tp"))
    pp, dp, tp = mesh["pp"], mesh["dp"], mesh["tp"]
    model, batch, targets = drawn()
    # The pipeline cuts the layers into stages, tensor parallelism each layer, FSDP what is left of it.
    layers = len(model) // pipeline
    stage = model[pp.get_local_rank() * layers :][:layers]
    for layer in stage:
        parallelize_module(layer, tp, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=dp)
    fully_shard(stage, mesh=dp)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=0.01)
    part = PipelineStage(stage, pp.get_local_rank(), pipeline, batch.device, group=pp.get_group())
    schedule = Schedule1F1B(part, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    first, last = part.is_first, part.is_last
    mine, wanted = (each.chunk(data)[dp.get_local_rank()] for each in (batch, targets))
    for _ in range(3):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        schedule.step(*[mine] * first, **{"target": wanted, "losses": losses} if last else {})
        optimizer.step()
    if last:
        loss = torch.stack(losses).mean().detach()
        dist.all_reduce(loss, group=dp.get_group())
        if dp.get_local_rank() == tp.get_local_rank() == 0:
            print(f"{loss.item() / data:.6f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(*map(int, sys.argv[1:]))
    dist.destroy_process_group()
