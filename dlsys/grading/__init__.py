"""Grade a folder of notebooks: each in a box of its own, judged where its code cannot reach.

What there is to earn, and what was handed in:
    assignment, checks     questions and their checks, from exercises/ and solutions/
    collect                whose submissions a folder holds (handed_in, naming, roster, reading)
    rebuild                a student's answers and own cells on the trusted notebook

Boxes:
    sandbox, seccomp       what a box sees, what it may use, which calls of the system it may make
    warm, zygote           boxes started quickly, by a process that has everything imported
    memory                 what a box's processes hold together
    selftest               a box that looks around before boxes are trusted
    provisioner, cold      Jupyter kernels in boxes, for nbgrader and other programs

One submission:
    inside, calls          in the student's box: its cells, and the functions they define
    referee, remote        in a box beside it: the trusted cells and the expressions of the checks
    errands                what the second does when the first asks it to
    wire, packing          how the two talk: JSON from the student's side, never pickle
    parties, running       the grader's side of both, and the order in which things run
    examine                from what came to points: the `result`

A class:
    course, records        every submission once, again only where something changed
    grade, late            a result with what people and lateness made of it
    reports                all files: tables, platforms, feedback, statistics, gradebook
    cli, check, export     the commands
"""
