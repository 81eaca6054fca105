"""The planner's seconds and bytes against public tables of measured runs: one line a regime.

    python bench/examination.py FOLDER

FOLDER has each table as one CSV file of any name, known by the columns in brackets. They are no
part of this book; their publishers have them:

- GPTs with Megatron-DeepSpeed on A100, no flash attention: VIA-Research/vTrain on GitHub, MIT
  license, data/ground_truth_single.csv (gpus, gbs, mbs, hidden, heads, layers, seq, tp, dp, pp,
  iter_ms) and ground_truth_multi.csv (params_b, too), whose runs are taken to recompute
- Llamas with nanotron on H100: Hugging Face's Ultra-Scale Playbook, its benchmark table, Apache-2.0
  license (model, nodes, gpus, mbs, grad_acc, gbs_seqs, seq_len, dp, pp, tp, zero, status, mfu_pct,
  tok_s, gpu_mem_gb). A run's batch is mbs x grad_acc x dp, in a few rows not gbs_seqs.

An error is the mean of |predicted / measured - 1|. "A predicts B" is calibrated on A alone, and
"as shipped" has the constants of machines.json; else they are calibrated on the runs of the line.
"""

import sys
from pathlib import Path

import numpy as np

from dlsys.composing_axes import machine
from dlsys.composing_axes.calibrate import calibrated, error
from dlsys.composing_axes.memory import held_bytes, stage_bytes
from dlsys.composing_axes.runs import runs_of
from dlsys.composing_axes.search import SURE
from dlsys.composing_axes.step_time import Constants, step_seconds, total
from dlsys.transformer import TransformerSpec

LLAMAS = {"1B": (16, 2048, 32, 8192), "3B": (28, 3072, 32, 8192)}
"""Layers, hidden size, heads, feed-forward size; of both, embedding and head are tied."""


def tables(folder):
    """The tables that a folder has, by name."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
        if "iter_ms" in rows.dtype.names:
            found["multi" if "params_b" in rows.dtype.names else "single"] = rows
        elif "tok_s" in rows.dtype.names:
            found["h100"] = rows[np.isin(rows["model"], list(LLAMAS))]
    return found


def gpts(rows, recompute):
    """Runs of a vTrain table, and their seconds."""
    sizes = zip(*(rows[n].tolist() for n in ("layers", "hidden", "heads", "seq")), strict=True)
    specs = [TransformerSpec(n, h, a, 51200, s) for n, h, a, s in sizes]
    how = {name: rows[name] for name in ("tp", "dp", "pp")} | {"sequences": rows["mbs"]}
    how |= {"micro_batches": rows["gbs"] / rows["dp"] / rows["mbs"], "recompute": recompute}
    return runs_of(specs, **how, flash=0, sequence_parallel=0), rows["iter_ms"] / 1e3


def llamas(rows):
    """Runs of the Playbook's table, failed ones too, and the seconds of those that ran."""
    keys = zip(rows["model"].tolist(), rows["seq_len"].tolist(), strict=True)
    shapes = [(*LLAMAS[name][:3], 131072, length, LLAMAS[name][3]) for name, length in keys]
    specs = [TransformerSpec(*sizes, gated=True, tied=True) for sizes in shapes]
    how = {name: rows[name] for name in ("tp", "dp", "pp", "zero")} | {"sequences": rows["mbs"]}
    tokens = rows["mbs"] * rows["grad_acc"] * rows["dp"] * rows["seq_len"]
    seconds = np.where(rows["status"] == "ok", tokens / rows["tok_s"], np.nan)
    return runs_of(specs, **how, micro_batches=rows["grad_acc"], greedy=1), seconds


def line(what, number, percent):
    print(f"{what:46}{number:5} runs {percent:6.1f} %")


def predict(what, runs, seconds, start, known, asked):
    """Calibrate on the runs that are known, print the error of those that are asked for."""
    made = calibrated(runs.take(known), seconds[known], start)
    line(what, asked.sum(), error(runs.take(asked), seconds[asked], made))
    return made


def a100(single, multi):
    shipped, start = machine("a100"), machine("a100").having(Constants())
    (runs, seconds), (more, longer) = gpts(single, 0), gpts(multi, 1)
    every, few = single["gpus"] > 0, single["gpus"] < 8
    made = predict("A100, one node", runs, seconds, start, every, every)
    line("A100, one node, as shipped", len(runs), error(runs, seconds, shipped))
    predict("A100, 2 and 4 GPUs predict 8", runs, seconds, start, few, ~few)
    predict("A100, more nodes", more, longer, made, multi["gpus"] > 0, multi["gpus"] > 0)
    line("A100, one node predicts more", len(more), error(more, longer, made))


def h100(rows):
    shipped, start = machine("h100"), machine("h100").having(Constants())
    runs, seconds = llamas(rows)
    ran, small, nodes = rows["status"] == "ok", rows["model"] == "1B", rows["nodes"]
    well = ran & (rows["mfu_pct"] >= 10)  # many of the others stalled, as `stalls` shows
    made = predict("H100, at least 10 % MFU", runs, seconds, start, well, well)
    line("H100, the same, as shipped", well.sum(), error(runs.take(well), seconds[well], shipped))
    predict("H100, 1B predicts 3B", runs, seconds, start, well & small, well & ~small)
    few, most = well & (nodes <= 4), well & (nodes == 8)
    predict("H100, up to 4 nodes predict 8", runs, seconds, start, few, most)
    line("H100, of any MFU", ran.sum(), error(runs.take(ran), seconds[ran], made))
    memory(rows, runs, ran)
    predicted = step_seconds(runs, made)
    choices(rows, seconds, predicted, ran)
    stalls(rows, seconds / predicted, ran)


def memory(rows, runs, ran):
    made, failed = machine("h100"), np.char.startswith(rows["status"], "crashed")
    full = total(held_bytes(runs, made)) / made.cluster.device.memory
    first = total(stage_bytes(runs, made, True))[ran] / (rows["gpu_mem_gb"][ran] * 2**30)
    line("bytes of the first stage, as shipped", ran.sum(), 100 * np.abs(first - 1).mean())
    for what, which in (("failed", failed), ("ran", ran)):
        line(f"{what}: may not fit", which.sum(), 100 * (full[which] > 1).mean())
        line(f"{what}: cannot fit", which.sum(), 100 * (full[which] > SURE).mean())


def choices(rows, seconds, predicted, ran):
    """How much longer than the fastest run the one took that was predicted to be fastest, of each
    model on each number of devices, with the batch that was asked for."""
    asked, slower = ran & (rows["mbs"] * rows["grad_acc"] * rows["dp"] == rows["gbs_seqs"]), []
    for model, gpus in sorted(set(zip(rows["model"][asked], rows["gpus"][asked], strict=True))):
        group = np.flatnonzero(asked & (rows["model"] == model) & (rows["gpus"] == gpus))
        chosen = group[np.argmin(predicted[group])]
        slower.append(100 * (seconds[chosen] / seconds[group].min() - 1))
    line(f"choice over best, median of {len(slower)}", asked.sum(), np.median(slower))
    line(f"choice over best, worst of {len(slower)}", asked.sum(), max(slower))


def stalls(rows, slower, ran):
    """Runs that took longer than any term of the model explains: most have a pipeline."""
    print("\npipeline  nodes  runs  over 1.5 times  over twice the predicted seconds")
    for piped in (False, True):
        for nodes in np.unique(rows["nodes"]):
            each = slower[ran & (rows["nodes"] == nodes) & ((rows["pp"] > 1) == piped)]
            over = f"{(each > 1.5).sum():16}{(each > 2).sum():12}"
            print(f"{'yes' if piped else 'no':8}{nodes:7}{len(each):6}{over}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or len(found := tables(Path(sys.argv[1]))) != 3:
        sys.exit("python bench/examination.py FOLDER, with three tables: see its docstring")
    a100(found["single"], found["multi"])
    h100(found["h100"])
