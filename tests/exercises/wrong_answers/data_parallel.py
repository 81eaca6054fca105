"""Wrong answers to the exercises of data parallelism."""

from tests.exercises.wrong_answers import DIRECT, Wrong, in_place_of

BYTES = "micro_batches = {}\nsent_bytes = {}\ntimes_as_long = {}"
FACTORS = "too_large = {}\nrow_weighs = {}"
READ = "slower = {}\nshared_first = {}\nshared_last = {}\nskipped = {}\nsynced = {}"
SIZES = "sizes = [mine % room] * (mine % room > 0) + [room] * (mine // room)"
EXPOSED = """
ready = free = 0.0
for compute, send in zip(backward, network):
    ready += compute
    free = max(ready, free) + send
return free - ready
"""
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
CHEAPEST = DESIGN.format(2048, 32, 4, 25e6, "infiniband-hdr")

BANK = {
    "bytes": [
        Wrong("sequences of a rank", BYTES.format(32, 34.875e9, 7), "In how many micro-batches"),
        Wrong("one rank alone", BYTES.format(256, 34.875e9, 7), "the ranks share the batch"),
        Wrong("a micro-batch", BYTES.format(4, 34.875e9, 7), "How many of them does a rank"),
        Wrong("the limit of many ranks", BYTES.format(8, 36e9, 7), "limit for very many"),
        Wrong("the gradients", BYTES.format(8, 18e9, 7), "These are the gradients"),
        Wrong("one phase", BYTES.format(8, "31 / 32 * 18e9", 7), "This is one phase"),
        Wrong(
            "an all-reduce for every micro-batch",
            BYTES.format(8, "8 * 34.875e9", 7),
            "averages after every micro-batch",
        ),
        Wrong(
            "accumulation makes the all-reduce smaller",
            BYTES.format(8, "34.875e9 / 8", 7),
            "does not make them smaller",
        ),
        *(
            Wrong(name, BYTES.format(8, 34.875e9, came), words)
            for name, came, words in (
                ("as a mean", 1, 'op="mean"'),
                ("one for each all-reduce", 3, "equally often"),
                ("1/n is missing", 4, "divided by 4 in the end. But"),
                ("the ranks for each all-reduce", 12, "equally often"),
                ("the first part for all", 16, "summed less often"),
                ("the loss is not divided", 21, "each loss is divided by 3"),
                ("not divided in the end", 28, "divided by 4 in the end"),
                ("all parts as the first", 64, "before it is divided by 4"),
                ("neither is divided", 84, "and the sum by 4"),
                ("the last part for all", "4 / 3", "Follow .grad"),
            )
        ),
        Wrong("sum over all ranks", BYTES.format(8, "32 * 34.875e9", 7), "sum over all ranks"),
        Wrong("everything in each round", BYTES.format(8, "31 * 18e9", 7), "sends a chunk"),
        Wrong("gigabytes", BYTES.format(8, 34.875, 7), "in bytes, not in GB"),
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
        Wrong("sizes for numbers", "append(sizes[i])", "not of their bytes", "append(i)"),
        *in_place_of(
            "room = limit if cut else first",
            ("one limit for all", "room = limit", "limit of its own"),
            ("the first limit for all", "room = first", "limit of the first bucket alone"),
        ),
        Wrong(
            "the library's buckets",
            """
            from dlsys.data_parallel import buckets

            plan = buckets({str(i): 4 * x for i, x in enumerate(sizes)}, 4 * limit)
            return [[int(name) for name in bucket.names] for bucket in plan.buckets]
            """,
            "limit of its own",
        ),
        Wrong(
            "a bucket for each gradient",
            "return [[i] for i in reversed(range(len(sizes)))]",
            "pays the latency",
        ),
        Wrong(
            "only above the limit is full",
            "if not cut or room < 0:",
            "it is sent once it has 60",
            "if room <= 0:",
        ),
        Wrong(
            "closed before it exceeds the limit",
            "if not cut or sizes[i] > room:",
            "once it has reached its limit",
            "if room <= 0:",
        ),
        Wrong(
            "the last bucket is forgotten",
            """
            cut, bucket, filled = [], [], 0
            for i in reversed(range(len(sizes))):
                bucket.append(i)
                filled += sizes[i]
                if filled >= (limit if cut else first):
                    cut.append(bucket)
                    bucket, filled = [], 0
            return cut
            """,
            "would stay local",
        ),
        Wrong(
            "one bucket of everything",
            "return [list(reversed(range(len(sizes))))]",
            "it is sent once it has 60",
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
        Wrong(
            "registered order within a bucket",
            "return [sorted(bucket) for bucket in cut]",
            "registered before it",
            "return cut",
        ),
    ],
    "mean": [
        *in_place_of(
            "too_large = 16",
            ("too small", "too_large = 1 / 16", "too large, not too small"),
            ("rows for ranks", "too_large = 48", "How many means"),
        ),
        Wrong(
            "weighs by rows already",
            "row_weighs = 1",
            "with one row or with five",
            "row_weighs = (1 / 3) / (1 / 8)",
        ),
        *in_place_of(
            "(1 / 3) / (1 / 8)",
            ("its weight", "1 / 3", "This is what it weighs"),
            ("against the first rank", "5", "a row of the first rank"),
            ("inverse", "3 / 8", "The other way"),
            ("the rank alone", "8", "that rank is one of three"),
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
            ("divided by the ranks", "sums[:-1] / comm.size", "divided by the number of all rows"),
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
            ("one by one", "sizes = [1] * mine", "how long is that of yours"),
            ("all at once", "sizes = [mine]", "room for three samples at a time"),
        ),
        Wrong(
            "waits for each",
            "handles[i] = comm.all_reduce(totals[i])\n    count = sum(samples)\n    return [total / count for total in handles]",
            "Nothing is hidden",
            "handles[i] = comm.all_reduce(totals[i], async_op=True)\n    count = sum(samples)\n    return [handle.wait() / count for handle in handles]",
        ),
        Wrong(
            "all after backward",
            "pass\n    handles = [comm.all_reduce(t, async_op=True) for t in totals]",
            "Nothing is hidden",
            "handles[i] = comm.all_reduce(totals[i], async_op=True)",
        ),
        Wrong(
            "first layer first",
            "in range(layers):",
            "from the last layer to the first",
            "in reversed(range(layers)):",
        ),
        Wrong(
            "sent before it is computed",
            """
            mine, seen = samples[comm.rank], 0
            handles = [None] * len(seconds)
            sizes = [mine % room] * (mine % room > 0) + [room] * (mine // room)
            for size in sizes:
                seen += size
                for i in reversed(range(len(seconds))):
                    if seen == mine:
                        total = sum(each[i] for each in gradients)
                        handles[i] = comm.all_reduce(total, async_op=True)
                    comm.compute(size * seconds[i])
            return [handle.wait() / sum(samples) for handle in handles]
            """,
            "after its comm.compute",
        ),
        *in_place_of(
            "comm.compute(size * seconds[i])",
            ("no backward pass", "pass", "Where is the backward pass"),
            ("a sample's time for all", "comm.compute(seconds[i])", "for each of its samples"),
            (
                "backward of the last micro-batch alone",
                "comm.compute(size * seconds[i] * (seen == mine))",
                "Where is the backward pass",
            ),
        ),
        *in_place_of(
            "count = sum(samples)",
            ("not divided", "count = 1", "gradient of a mean loss is their mean"),
            ("divided by ranks", "count = comm.size", "How many samples have been added up"),
            ("divided by both", "count = sum(samples) * comm.size", "once too often"),
        ),
        *in_place_of(
            "handles[i] = comm.all_reduce(totals[i], async_op=True)\n    count = sum(samples)",
            (
                "a mean of the ranks' means",
                'handles[i] = comm.all_reduce(totals[i] / mine, "mean", async_op=True)\n    count = 1',
                "Right for equal parts",
            ),
            (
                "a sum of the ranks' means",
                "handles[i] = comm.all_reduce(totals[i] / mine, async_op=True)\n    count = 1",
                "1/n is missing",
            ),
        ),
        Wrong(
            "the last micro-batch alone",
            "totals[i] = of_sample[i]",
            "Every sample counts the same",
            "totals[i] = totals[i] + of_sample[i]",
        ),
        Wrong(
            "nothing is sent",
            """
            for i in reversed(range(len(seconds))):
                comm.compute(samples[comm.rank] * seconds[i])
            return [sum(several) / len(several) for several in zip(*gradients)]
            """,
            "nothing is averaged over the ranks",
        ),
    ],
    "timeline": [
        *(
            Wrong(name, READ.format(*came), words)
            for name, came, words in (
                ("one all-reduce is left", (4, 2, 6, 5, 4), "buckets wait for each other"),
                ("nothing is hidden from the slower one", (16, 2, 6, 5, 4), "Some of it is hidden"),
                ("the end of the slower step", (19, 2, 6, 5, 4), "when the step ends"),
                ("twice as slow, twice as long", (8, 2, 6, 5, 4), "no rest"),
                ("a shared weight is complete at once", (7, 0, 6, 5, 4), "When is it complete"),
                ("a shared weight is sent twice", (7, 4, 6, 5, 4), "is sent once"),
                ("registered first, sent first", (7, 6, 6, 5, 4), "which bucket is it in"),
                ("three at the end", (7, 8, 6, 5, 4), "in which order"),
                ("what is complete is sent", (7, 2, 2, 5, 4), "do not tell each other"),
                ("a shared weight is there at once", (7, 2, 0, 5, 4), "When is it complete?"),
                ("four buckets", (7, 2, 8, 5, 4), "three buckets here"),
                ("one bucket waits", (7, 2, 4, 5, 4), "what do the others do"),
                ("zeros at once", (7, 2, 6, 2, 4), "An all-reduce needs both"),
                ("others overtake", (7, 2, 6, 3, 4), "overtake"),
                ("after rank 0's backward", (7, 2, 6, 8, 4), "not done with backward when"),
                ("one more bucket late", (7, 2, 6, 4, 4), "until then"),
                ("the end of that step", (7, 2, 6, 17, 4), "when the step ends"),
                ("the second pass hides the first", (7, 2, 6, 5, 2), "under the second pass"),
                ("all of the communication", (7, 2, 6, 5, 16), "hidden under each pass"),
                ("the first pass is hidden from", (7, 2, 6, 5, 10), "waited for the second"),
                ("the end of both passes", (7, 2, 6, 5, 28), "than the two passes"),
                ("everything hidden", (7, 2, 6, 5, 0), "only when the pass ends"),
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
        Wrong(
            "buckets do not wait for each other",
            "free = max(free, ready + send)",
            "one after another",
            "free = max(ready, free) + send",
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
            (
                "keeps what differs from the mean",
                "return total / comm.size, due - total / comm.size",
                "what IT has not sent",
            ),
        ),
        Wrong("keeps everything", "pass", "would be sent again", "kept[places] = 0.0"),
        Wrong("by value", "due.topk(k)", "-5 is larger", "due.abs().topk(k)"),
        Wrong("the smallest", "topk(k, largest=False)", "choose the largest by abs()", "topk(k)"),
        Wrong(
            "a place that comes twice is set",
            "total[pairs[:, 0].long()] = pairs[:, 1]",
            "keeps one of them only",
            "total.index_add_(0, pairs[:, 0].long(), pairs[:, 1])",
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
        Wrong(
            "the package's hook",
            """
            from types import SimpleNamespace
            from dlsys.data_parallel import TopK

            hook = TopK(k / len(gradient))
            hook.residuals[0] = residual
            bucket = SimpleNamespace(flat=gradient, index=0)
            return hook(comm, bucket).wait(), hook.residuals[0]
            """,
            "in two messages",
        ),
        *in_place_of(
            "pairs = comm.all_gather(pairs)",
            (
                "a plan that cuts one tensor in two",
                'pairs = comm.all_gather(pairs, plan="bidirectional")',
                "the ring does not",
            ),
            (
                "all places before all values, read as pairs",
                "pairs = comm.all_gather(pairs.T.contiguous()).view(-1, 2)",
                "Are values taken for places",
            ),
        ),
        Wrong("sizes without signs", "due[places].abs()", "with their signs", "due[places]"),
        Wrong(
            "a bit for each place",
            """
            due = gradient + residual
            chosen = torch.zeros(64, dtype=torch.bool)
            chosen[due.abs().topk(k).indices] = True
            kept = due * ~chosen[:60]
            bits = (chosen.view(4, 16) * 2.0 ** torch.arange(16)).sum(1).to(torch.int32)
            words = (bits[::2] + 65536 * (bits[1::2] - 65536 * (bits[1::2] >> 15))).to(torch.int32)
            sent = torch.cat([words.view(torch.float32), due[chosen[:60]]])
            total = torch.zeros(60)
            for one in comm.all_gather(sent).view(comm.size, -1):
                words = one[:2].contiguous().view(torch.int32)
                total[((words[:, None] >> torch.arange(32)) & 1).flatten()[:60] == 1] += one[2:]
            return total / comm.size, kept
            """,
            "the form is given",
        ),
        Wrong(
            "numbers of 64 bits",
            "pairs = comm.all_gather(pairs.double()).float()",
            "32 are enough",
            "pairs = comm.all_gather(pairs)",
        ),
    ],
    "design": [
        Wrong(
            "ratio of the squares",
            DESIGN.format("385.5 / 7.5", 32, 4, 25e6, "infiniband-hdr"),
            "Two unknowns",
        ),
        Wrong("the trace", DESIGN.format(3072, 32, 4, 25e6, "infiniband-hdr"), "This is the trace"),
        Wrong(
            "the large batch has no noise",
            DESIGN.format("3072 / 7.5", 32, 4, 25e6, "infiniband-hdr"),
            "take it off before you divide",
        ),
        Wrong(
            "batches of ranks for sequences",
            DESIGN.format(256, 32, 4, 25e6, "infiniband-hdr"),
            "In sequences it is 8 times",
        ),
        Wrong(
            "the critical batch of the runs",
            DESIGN.format("TRADEOFF.critical_batch", 32, 4, 25e6, "infiniband-hdr"),
            "What does the trial alone",
        ),
        Wrong(
            "the cheapest devices",
            DESIGN.format(2048, 32, 8, 2.6e9, "ethernet-100g"),
            "more than nine hours",
        ),
        Wrong(
            "the fewest samples",
            DESIGN.format(2048, 16, 8, 25e6, "infiniband-hdr"),
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
        Wrong("the network buys time", CHEAPEST + 'changes = "network"', "while they wait"),
        Wrong("micro-batches buy time", CHEAPEST + 'changes = "micro_batches"', "hide the network"),
        Wrong("buckets buy time", CHEAPEST + 'changes = "bucket_bytes"', "in nine hours and in"),
        Wrong("the dearer network of 16 ranks", CHEAPEST + "saves = 28.2", "a cheaper design"),
        Wrong("what it costs", CHEAPEST + "saves = 569.35", "How much less"),
        Wrong("against the next best", CHEAPEST + "saves = 131.57", "the next best design"),
        Wrong("the part saved", CHEAPEST + "saves = 0.133", "wanted in dollars"),
    ],
    "tax": [
        *(
            Wrong(name, TAX.format(came, 13.7, 0.9, 81.92, "constant", "amdahl"), words)
            for name, came, words in (
                ("36 % of the wrong step", 0.36, "a smaller part there"),
                ("36 % of an eighth", 0.36 / 8, "of the whole step of 8 ranks"),
                ("against the rest", 0.36 / 5.12, "against the rest"),
                ("eight times, not an eighth", 2.88, "not a larger one"),
                ("percent", 6.57, "not a percentage"),
                ("its inverse", 15.2, "Its inverse"),
            )
        ),
        *(
            Wrong(name, TAX.format(0.0657, came, 0.9, 81.92, "constant", "amdahl"), words)
            for name, came, words in (
                ("36 % of the one-rank step", "128 / 46.72", "put your r_of_one in"),
                ("the constant fraction for both", 81.92, "into the other"),
                (
                    "r of one in the constant fraction",
                    "128 * (1 - 0.36 / 5.48)",
                    "every rank's step",
                ),
                ("the limit of many ranks", 15.2, "limit"),
                ("efficiency in percent", 10.7, "efficiency in percent"),
                ("efficiency of Amdahl's", 0.107, "This is the efficiency. "),
            )
        ),
        *(
            Wrong(name, TAX.format(0.0657, 13.7, came, 81.92, "constant", "amdahl"), words)
            for name, came, words in (
                ("the part of one rank", "0.36 / 5.48", "128 times shorter"),
                ("the part stays 36 %", 0.36, "16 times shorter"),
                ("communication against compute", 9, "against compute"),
                ("compute", 0.1, "what compute is"),
                ("part in percent", 90, "not a percentage"),
                ("the part of 36 % of one rank", 0.986, "are of the step of 8 ranks"),
                ("128 times", "128 * 0.36 / 5.48", "More than the whole step?"),
            )
        ),
        *(
            Wrong(name, TAX.format(0.0657, 13.7, 0.9, came, "constant", "amdahl"), words)
            for name, came, words in (
                ("Amdahl for the constant fraction", 13.7, "This is Amdahl's."),
                ("Amdahl with the wrong r", "128 / 46.72", "with 36 % of the one-rank step"),
                ("efficiency", 0.64, "times n"),
                ("what is lost", 46.1, "what is lost"),
            )
        ),
        *(
            Wrong(name, TAX.format(0.0657, 13.7, 0.9, 81.92, *came), words)
            for name, came, words in (
                ("the other way round", ("amdahl", "constant"), "The other way round"),
                ("Amdahl for both", ("amdahl", "amdahl"), "its compute stays"),
                ("constant for both", ("constant", "constant"), "the fraction grows"),
            )
        ),
    ],
}


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
        ("rounded", "noise_scale = 2000", "noise_scale = trace / (7.5 - trace / 512)"),
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
