#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image in which submissions are graded.
# Choose an image with Python 3.11 or later. For a small image, install a CPU build of torch, of the
# version in constraints.txt, into the environment below before the last installation.
set -euo pipefail

home=${AUTOGRADER:-/autograder}
chmod a+rx "$home" # students' code runs as another user, who has to reach Python
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    bubblewrap python3 python3-venv

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or later is needed; choose a newer image in Gradescope." >&2
    exit 1
fi
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --constraint "$home/source/course/constraints.txt" \
    "$home/source/course[grading]"
touch "$home/for-one-submission" # run_autograder runs code without a box nowhere else
