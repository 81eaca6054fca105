"""Lines that stay distinguishable for colour-blind readers, and in grey by style and marker."""

LINES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#000000", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#E69F00", (0, (1, 1)), "P"),
)
"""(color, line style, marker) of the first, the second, ... line: Okabe and Ito's colours."""
