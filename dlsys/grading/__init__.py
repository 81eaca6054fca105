"""Grade a folder of notebooks: each in a box of its own, judged where its code cannot reach.

    collect      finds what each student handed in, and refuses what is no notebook, with a reason
    assignment   what there is to earn: questions and their checks, from exercises/ and solutions/
    rebuild      puts a student's answers and own cells onto the trusted notebook
    sandbox      the box: no network, no files but the environment's, limits on everything
    warm         starts boxes quickly, from a process that has torch loaded
    inside       what runs in the student's box: the notebook's cells, and the functions they define
    referee      what runs in a box beside it: the trusted cells and the expressions of the checks
    wire         how the two talk: JSON from the student's side, never pickle
    examine      one submission from its cells to its points
    course       a class: all submissions, again only where something changed
"""
