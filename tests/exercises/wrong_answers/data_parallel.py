"""Wrong answers to the exercises of data parallelism."""

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of

BYTES = "micro_batches = {}\nsent_bytes = {}\ntimes_as_long = {}"
READ = "slower = {}\nshared_first = {}\nshared_last = {}\nskipped = {}\nsynced = {}"
SIZES = "sizes = [mine % room] * (mine % room > 0) + [room] * (mine // room)"
TAX = (
    "r_of_one = {}\namdahl = {}\npart_of_step = {}\nconstant = {}\n"
    'keeps_its_batch = "{}"\nshares_one_batch = "{}"'
)
DESIGN = """
noise_scale = {}
design = {{
    "ranks": {},
    "micro_batches": {},
    "bucket_bytes": {},
    "network": "{}",
}}
changes, saves = "ranks", 87.3
"""

BANK = {
    "bytes": [
        Wrong("sequences of a rank", BYTES.format(32, 34.875e9, 7), "In how many micro-batches"),
        Wrong("the limit of many ranks", BYTES.format(8, 36e9, 7), "limit for very many"),
        *(
            Wrong(name, BYTES.format(8, 34.875e9, came), words)
            for name, came, words in (
                ("as a mean", 1, 'op="mean"'),
                ("the last part for all", "4 / 3", "Follow .grad"),
            )
        ),
        Wrong(
            "each is summed once",
            "length += ranks / passes",
            "Follow `",
            "length = ranks * (length + 1 / passes)",
        ),
    ],
    "cut": [
        *in_place_of(
            "for i in reversed(range(len(sizes))):",
            ("first layer first", "for i in range(len(sizes)):", "proved"),
            (
                "what is too large is left out",
                "for i in reversed(range(len(sizes))):\n        if sizes[i] > limit:\n            continue",
                "is sent, too",
            ),
        ),
        Wrong(
            "one bucket, not a list of them",
            "return list(reversed(range(len(sizes))))",
            "should be a list of lists of whole numbers",
        ),
        *in_place_of(
            "room = limit if cut else first",
            ("one limit for all", "room = limit", "limit of its own"),
            ("the first limit for all", "room = first", "limit of the first bucket alone"),
        ),
        Wrong(
            "a bucket for each gradient",
            "return [[i] for i in reversed(range(len(sizes)))]",
            "pays the latency",
        ),
        Wrong(
            "what is too large is alone",
            "if room <= 0 or sizes[i] > limit:",
            "joins the open bucket like any other",
            "if room <= 0:",
        ),
        Wrong(
            "an empty bucket after the last",
            """
            cut, room = [[]], first
            for i in reversed(range(len(sizes))):
                cut[-1].append(i)
                room -= sizes[i]
                if room <= 0:
                    cut.append([])
                    room = limit
            return cut
            """,
            "no bucket is empty",
        ),
    ],
    "mean": [
        *in_place_of(
            "too_large = 16",
            ("too small", "too_large = 1 / 16", "too large, not too small"),
        ),
        Wrong(
            "right on one rank only",
            "sums if comm.rank == 0 else 0 * sums",
            "every rank needs both sums",
            "comm.all_reduce(sums)",
        ),
        *in_place_of(
            "return w - 0.0625 * sums[:-1] / sums[-1]",
            (
                "missing 1/n",
                "gradient = 2 / len(x) * (x.T @ error)\n    return w - 0.0625 * comm.all_reduce(gradient)",
                "1/n is missing",
            ),
            (
                "mean of means",
                'gradient = 2 / len(x) * (x.T @ error)\n    return w - 0.0625 * comm.all_reduce(gradient, op="mean")',
                "weigh each by its rows",
            ),
        ),
        *in_place_of(
            "sums[:-1] / sums[-1]",
            ("divided twice", "sums[:-1] / sums[-1] / comm.size", "twice"),
            ("not divided by the rows", "sums[:-1]", "This is the sum over all rows"),
            (
                "divided by the rows that the shown batches have",
                "sums[:-1] / 8",
                "another in each batch",
            ),
        ),
        Wrong(
            "weighted means, and a rank without rows",
            "rows * (2 / rows * (x.T @ error))",
            "A rank without rows divides by zero",
            "2 * x.T @ error",
        ),
        Wrong(
            "gradients of all are gathered",
            "sums = comm.all_gather(sums).view(comm.size, -1).sum(0)",
            "everybody's gradients",
            "sums = comm.all_reduce(sums)",
        ),
    ],
    "step": [
        Wrong(
            "an all-reduce for every micro-batch",
            """
            totals, seen = [0.0] * len(seconds), 0
            while seen < samples[comm.rank]:
                size = min(room, samples[comm.rank] - seen)
                handles = [None] * len(seconds)
                for i in reversed(range(len(seconds))):
                    comm.compute(size * seconds[i])
                    own = sum(g[i] for g in gradients[seen : seen + size])
                    handles[i] = comm.all_reduce(own, async_op=True)
                totals = [t + h.wait() for t, h in zip(totals, handles)]
                seen += size
            return [t / sum(samples) for t in totals]
            """,
            "an all-reduce for every micro-batch",
        ),
        *in_place_of(
            SIZES,
            (
                "the rest comes last",
                "sizes = [min(room, mine - k) for k in range(0, mine, room)]",
                "how long is that of yours",
            ),
            (
                "as equal as can be, the larger first",
                "m = -(-mine // room)\n    sizes = [mine // m + (k < mine % m) for k in range(m)]",
                "is there room for another sample",
            ),
            ("all at once", "sizes = [mine]", "room for three samples at a time"),
        ),
        Wrong(
            "first layer first",
            "in range(layers):",
            "from the last layer to the first",
            "in reversed(range(layers)):",
        ),
        *in_place_of(
            "count = sum(samples)",
            ("not divided", "count = 1", "gradient of a mean loss is their mean"),
        ),
        *in_place_of(
            "handles[i] = comm.all_reduce(totals[i], async_op=True)\n    count = sum(samples)",
            (
                "a mean of the ranks' means",
                'handles[i] = comm.all_reduce(totals[i] / mine, "mean", async_op=True)\n    count = 1',
                "Right for equal parts",
            ),
        ),
        Wrong(
            "the last micro-batch alone",
            "totals[i] = of_sample[i]",
            "Every sample counts the same",
            "totals[i] = totals[i] + of_sample[i]",
        ),
    ],
    "timeline": [
        *(
            Wrong(name, READ.format(*came), words)
            for name, came, words in (
                ("one all-reduce is left", (4, 2, 6, 5, 4), "buckets wait for each other"),
                ("twice as slow, twice as long", (8, 2, 6, 5, 4), "no rest"),
                ("three at the end", (7, 8, 6, 5, 4), "in which order"),
            )
        ),
        *in_place_of(
            "return free - ready",
            (
                "the network never stops after the first bucket",
                "return max(network[-1], sum(network) + backward[0] - sum(backward))",
                "does not begin at 0",
            ),
            ("end of the step", "return free", "when the step ends"),
            ("all after backward", "return sum(network)", "all of the communication"),
            (
                "communication less backward",
                "return max(0, sum(network) - sum(backward))",
                "cannot begin before the first bucket",
            ),
            ("the last bucket alone", "return network[-1]", "without waiting"),
        ),
    ],
    "topk": [
        *in_place_of(
            "return total / comm.size, kept",
            ("missing 1/n", "return total, kept", "1/n of it"),
            (
                "no error feedback",
                "return total / comm.size, torch.zeros_like(due)",
                "neither sent nor kept",
            ),
            ("keeps what was sent", "return total / comm.size, due - kept", "what was NOT sent"),
        ),
        Wrong(
            "what was kept is not used",
            "due = gradient.clone()",
            "over three steps",
            "due = gradient + residual",
        ),
        Wrong(
            "whole vectors with zeros",
            """
            due = gradient + residual
            kept = due.clone()
            kept[due.abs().topk(k).indices] = 0.0
            return comm.all_reduce(due - kept, op="mean"), kept
            """,
            "whole vectors",
        ),
        Wrong(
            "two messages",
            """
            due = gradient + residual
            places = due.abs().topk(k).indices
            kept = due.clone()
            kept[places] = 0.0
            values = comm.all_gather(due[places])
            places = comm.all_gather(places.to(torch.int32))
            total = torch.zeros_like(due).index_add_(0, places, values)
            return total / comm.size, kept
            """,
            "in two messages",
        ),
        Wrong(
            "two messages, and long places",
            """
            due = gradient + residual
            places = due.abs().topk(k).indices
            kept = due.clone()
            kept[places] = 0.0
            values, places = comm.all_gather(due[places]), comm.all_gather(places)
            total = torch.zeros_like(due).index_add_(0, places, values)
            return total / comm.size, kept
            """,
            "places as 64-bit numbers",
        ),
        *in_place_of(
            "pairs = comm.all_gather(pairs)",
            (
                "all places before all values, read as pairs",
                "pairs = comm.all_gather(pairs.T.contiguous()).view(-1, 2)",
                "Are values taken for places",
            ),
        ),
    ],
    "design": [
        Wrong(
            "ratio of the squares",
            DESIGN.format("385.5 / 97.5", 32, 4, 25e6, "infiniband-hdr"),
            "Two unknowns",
        ),
        Wrong(
            "the cheapest devices",
            DESIGN.format(2048, 32, 8, 2.6e9, "ethernet-100g"),
            "more than nine hours",
        ),
        Wrong(
            "the fastest network",
            DESIGN.format(2048, 32, 2, 25e6, "infiniband-ndr"),
            "the next best",
        ),
        Wrong(
            "the most efficient step",
            DESIGN.format(2048, 32, 4, 25e6, "infiniband-ndr"),
            "better than it has to be",
        ),
        Wrong(
            "one bucket",
            DESIGN.format(2048, 32, 4, 2.6e9, "infiniband-ndr"),
            "One bucket of everything",
        ),
        Wrong(
            "many ranks",
            DESIGN.format(2048, 64, 4, 25e6, "infiniband-hdr"),
            "With fewer ranks",
        ),
        Wrong(
            "many ranks with a large batch",
            DESIGN.format(2048, 128, 4, 25e6, "infiniband-ndr"),
            "at the noise scale",
        ),
        Wrong(
            "a choice that there is not",
            DESIGN.format(2048, 48, 2, 25e6, "infiniband-ndr"),
            "is no choice that there is",
        ),
        Wrong(
            "the cheapest of all",
            "return min(all_designs, key=dollars)",
            "Of all designs, keep those that are done in time, and take",
            "return min(in_time, key=dollars)",
        ),
    ],
    "tax": [
        *(
            Wrong(name, TAX.format(came, 13.7, 0.9, 81.92, "constant", "amdahl"), words)
            for name, came, words in (("36 % of the wrong step", 0.36, "a smaller part there"),)
        ),
        *(
            Wrong(name, TAX.format(0.0657, came, 0.9, 81.92, "constant", "amdahl"), words)
            for name, came, words in (
                ("36 % of the one-rank step", "128 / 46.72", "put your r_of_one in"),
            )
        ),
        *(
            Wrong(name, TAX.format(0.0657, 13.7, came, 81.92, "constant", "amdahl"), words)
            for name, came, words in (("the part of one rank", "0.36 / 5.48", "128 times shorter"),)
        ),
        *(
            Wrong(name, TAX.format(0.0657, 13.7, 0.9, came, "constant", "amdahl"), words)
            for name, came, words in (
                ("Amdahl for the constant fraction", 13.7, "This is Amdahl's."),
            )
        ),
        Wrong(
            "the part as it is",
            "part",
            "First turn the part of that step into the part of the step",
            "part / (ranks * (1 - part) + part)",
        ),
    ],
}

# The wrong values that the sealed hints of a check are for, in their order; ... is one that
# nobody has found.
SEALED = {
    "bytes": {
        "micro_batches": [32, 256, 4],
        "sent_bytes": [3.6e10, 1.8e10, 1.74e10, 2.79e11, 4.36e9, 1.12e12, 5.58e11, 34.9],
        "times_as_long": [1, 3, 4, 12, 16, 21, 28, 64, 84],
    },
    "mean": {
        "too_large": [0.0625, 48],
        "row_weighs": [0.375, 0.333, 8, 3, 5, 1],
    },
    "timeline": {
        "slower": [4, 16, 19],
        "shared_first": [0, 4, 6],
        "shared_last": [2, 0, 8, 4],
        "skipped": [2, 3, 4, 8, 17, 0],
        "synced": [2, 0, 10, 28, 16, 18],
    },
    "design": {
        "noise_scale": [3.95, 3072, 1.5, 31.5, 3.94, 256, 1536, 512, 1800],
        "changes": ['micro_batches', 'bucket_bytes', 'network'],
        "saves": [569, 28.2, 132, 0.133],
    },
    "tax": {
        "r_of_one": [0.36, 0.045, 0.0703, 2.88, 6.57, 15.2],
        "amdahl": [2.74, 81.9, 120, 15.2, 10.7, 0.107],
        "part_of_step": [0.0657, 0.36, 9, 0.1, 90, 0.986, 8.41],
        "constant": [2.74, 0.64, 46.1, 13.7],
        "in_small_letters(keeps_its_batch, shares_one_batch)": [['amdahl', 'constant'], ['amdahl', 'amdahl'], ['constant', 'constant']],
    },
}  # fmt: skip

# Answers of another structure: what came, its source, words of the sentence, what of the solution it replaces.
GRADIENTS = "return [handle.wait() / count for handle in handles]"
WAITED = "[handle.wait() for handle in handles]\n    return"
TOPK = "return total / comm.size, kept"

OTHERWISE: dict[str, list[tuple[str, ...]]] = {
    "bytes": [("a list", "micro_batches = [8]", "take them off")],
    "cut": [
        ("one bucket", "return [5, 4, 3]", "[0] is the number 5"),
        ("numbers in a dictionary", "return {0: [5]}", "it is a dictionary with the keys [0]"),
        ("names", 'return [["5"], ["4"]]', "[0][0] is the text '5'"),
        ("another nesting", "return [cut]", "[0][0] is a list of 1", "return cut"),
    ],
    "mean": [
        ("a list", "return [float(one) for one in w]", "What rank 0 returns should be a tensor", "return w - 0.0625 * sums[:-1] / sums[-1]"),
        ("a pair", "return w, sums", "it is a tuple of 2", "return w - 0.0625 * sums[:-1] / sums[-1]"),
    ],
    "step": [
        ("last layer first", f"{GRADIENTS}[::-1]", "(layer 2, layer 1, layer 0) came", GRADIENTS),
        ("one number", f"{WAITED} 3", "a list of 3 (a tensor, a tensor, a tensor); it is the number 3", GRADIENTS),
        ("a dictionary", "return {i: h.wait() for i, h in enumerate(handles)}", "a dictionary", GRADIENTS),
        ("a layer too few", f"{GRADIENTS}[1:]", "it is a list of 2", GRADIENTS),
        ("handles", f"{WAITED} handles", "[0] is of type", GRADIENTS),
    ],
    "timeline": [
        ("text", 'slower = "7 ms"', "write it without quotes", "slower = 7"),
        ("a list", "synced = [2, 2]", "a list of 2 came", "synced = 4"),
        ("a pair", "return free, ready", "a list of 2 came", "return free - ready"),
    ],
    "topk": [
        ("the mean alone", "return total / comm.size", "a tuple of 2 (a tensor, a tensor)", TOPK),
        ("a dictionary", 'return {"mean": total, "kept": kept}', "['mean', 'kept']", TOPK),
        ("swapped", "return kept, total / comm.size", "(residual, mean) came", TOPK),
        ("values alone", "return total / comm.size, values", "as long as a gradient", TOPK),
    ],
    "design": [
        ("a list", "noise_scale = 2048\ndesign = [32, 4, 25e6]", "the keys 'ranks', 'micro_batches'"),
        ("a list for text", 'noise_scale = 2048\ndesign["network"] = ["ethernet-100g"]', "is no choice"),
    ],
    "tax": [("the other way", 'r_of_one = 0.36 / 5.48\namdahl = "13.7"', "write it without quotes")],
}  # fmt: skip

# The programs that are asked for, by question.
PROGRAMS = {"mean": "repaired", "step": "step_gradients", "topk": "topk_mean"}

GATHERED = """
from dlsys.collectives import Plan

n = comm.size
to_all = [(r, (r + k) % n, r, r + 1) for k in range(1, n) for r in range(n)]
plan = Plan("all_gather", "direct", n, n, [to_all])
pairs = comm.all_gather(pairs, plan=plan)
""".strip().replace("\n", "\n    ")

# Right answers of another kind: what came, its source, what of the solution it replaces.
RIGHT = {
    "bytes": [("rounded", "micro_batches = 8\nsent_bytes = 35e9\ntimes_as_long = 7")],
    "mean": [
        ("rounded", "row_weighs = 2.7", "row_weighs = (1 / 3) / (1 / 8)"),
        (
            "fewer messages, by halving and doubling",
            'comm.all_reduce(sums, plan="halving_doubling" if comm.size > 1 else None)',
            "comm.all_reduce(sums)",
        ),
        (
            "the best known",
            DIRECT.strip().replace("\n", "\n    ") + "\n    sums = direct(sums)",
            "sums = comm.all_reduce(sums)",
        ),
    ],
    "step": [
        (
            "as equal as can be, the largest last",
            "m = -(-mine // room)\n    sizes = [room] * (mine >= room)\n"
            "    left = mine - sum(sizes)\n"
            "    sizes = [left // (m - 1) + (k < left % (m - 1)) for k in range(m - 1)] + sizes"
            " if sizes else [left]",
            SIZES,
        ),
    ],
    "topk": [
        ("the best known", GATHERED, "pairs = comm.all_gather(pairs)  # one message for both")
    ],
    "timeline": [("with a point", "slower = 7.0", "slower = 7")],
    "design": [
        ("rounded", "noise_scale = 2000", "noise_scale = trace / (97.5 - trace / 32)"),
    ],
    "tax": [
        (
            "rounded",
            "r_of_one, amdahl, part_of_step, constant = 0.066, 14.0, 0.9, 82.0\n"
            'keeps_its_batch, shares_one_batch = "constant", "amdahl"',
        ),
        ("in capitals", 'shares_one_batch = "Amdahl"', 'shares_one_batch = "amdahl"'),
    ],
}
