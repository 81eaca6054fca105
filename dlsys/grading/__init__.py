"""Grade a folder of notebooks: each in a box of its own, judged where its code cannot reach.

Six rooms and what they share. A room imports from those below it and from the files here; boxes
and collecting do not know of each other.

commands:
    cli, check, export     grade a class, check one notebook, pack for Gradescope and Classroom
    display                what a terminal shows

reports, from the grades of a class:
    everything             all files, in one go
    tables, platforms      grades and questions as tables; Canvas, Moodle, Gradescope
    feedback, explain      a page for a student, and what is said of a question
    statistics             how every question did
    gradebook              nbgrader's (gradebook_rows, handgrading), for grading by hand

course, a class:
    run, records           every submission once, again only where something changed
    grade, late            a result with what people and lateness made of it

judging, one submission:
    inside, calls          in the student's box: its cells, and the functions they define
    referee, remote        in a box beside it: the trusted cells and the expressions of the checks
    errands                what the second does when the first asks it to
    wire, packing          how the two talk: JSON from the student's side, never pickle
    parties, running       the grader's side of both, and the order in which things run
    examine                from what came to points: the `result`

boxes:
    sandbox, seccomp       what a box sees, what it may use, which calls of the system it may make
    warm, zygote           boxes started quickly, by a process that has everything imported
    memory                 what a box's processes hold together
    selftest               a box that looks around before boxes are trusted
    provisioner, cold      Jupyter kernels in boxes, for nbgrader and other programs

collecting:
    collect                whose submissions a folder holds (handed_in, naming, roster, reading)
    rebuild                a student's answers and own cells on the trusted notebook

what the rooms share:
    assignment, checks     questions and their checks, from exercises/ and solutions/
    result                 points, and how they came about
    project, files, text   where the course is, files written whole, text that is safe to show
"""
