# Needs Python 3.11 or later, make and git; everything else is installed into .venv.
#
#   make book     the book as HTML, every chapter executed      (make book SOLUTIONS=1: with solutions, for instructors)
#                 STRICT=1: a chapter that fails on this machine, or a warning, is an error
#   make test     all tests but those that grade hundreds of notebooks (make attacks) or need a browser (make look)
#   make help     the rest

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
CONSTRAINTS := constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# TORCH=... names one more index to install from: of two builds of a version, pip takes the one with "+cpu" behind it.
INSTALL += $(if $(TORCH),--extra-index-url $(TORCH))
# Packages are compiled on all cores, and what is hardly ever imported when it is.
RARELY := /(tests?|testing|_inductor|networkx|sympy|setuptools)/
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json

# The instructor's book is built beside the students', so that neither can leak into the other.
ifeq ($(SOLUTIONS),1)
OUTPUT := _build/instructor
INPUTS := chapters exercises reference dlsys solutions
export SOLUTIONS
else
OUTPUT := .
INPUTS := chapters exercises reference dlsys
unexport SOLUTIONS
endif
BUILD := $(patsubst ./%,%,$(OUTPUT)/_build)
PAGES := $(BUILD)/html
FILES := find $(INPUTS) -type f ! -path '*/__pycache__/*' ! -path '*/.*'
PORT := 8000
TESTS = tests solutions/*/*.ipynb
# What grades hundreds of notebooks, or a course of them: a step of its own.
ATTACKS := $(patsubst %,tests/grading/test_%.py,attacks banks class course gradebook lateness)
ATTACKS += tests/exercises/test_points.py
# What looks at the pages in a browser: another one. The last three are quick, and part of the tests as well.
BROWSER := $(patsubst %,tests/book/test_%.py,pages predictions lab)
LOOK := $(BROWSER) $(patsubst %,tests/book/%.py,test_budget test_spoilers quizzes/test_shown)
# A module is compiled once, when it is first imported, and not by every process of a test or a grader.
unexport PYTHONDONTWRITEBYTECODE
# A file's tests stay in one process, as a notebook's cells must, and files start in their order: the long ones early.
PARALLEL := -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder

.PHONY: help book test attacks look anywhere soak sweep lab serve lint mutants release clean FORCE
.DELETE_ON_ERROR:

help:
	@echo 'make book      build the book as HTML, with every chapter executed'
	@echo 'make test      run the tests, and the solutions of the exercises'
	@echo 'make attacks   grade a class, wrong answers to every question, and notebooks that attack the grader'
	@echo 'make look      look at the built book in a browser, page by page'
	@echo 'make anywhere  run the project as other machines would: two hours; ONLY="bare full" for two of them'
	@echo 'make soak      kill a training run 200 times, and see that it ends as if nobody had'
	@echo 'make sweep     call all that is public with one argument of another kind, 50,000 times: a quarter of an hour'
	@echo 'make lab       open JupyterLab; a chapter opens as a notebook by double click'
	@echo 'make serve     show the built book at a local address'
	@echo 'make lint      check style, types and the direction of imports'
	@echo 'make mutants CHAPTER=tensor_parallel   show what its tests would not notice: some ten minutes'
	@echo 'make release   write exercises/ from solutions/'
	@echo 'make clean     remove what was built (not .venv)'
	@echo 'make book SOLUTIONS=1   the same book with the solutions folded under the exercises'
	@echo 'make book STRICT=1      a chapter that fails on this machine, or a warning, is an error'

book: $(PAGES)/.complete
	@echo "The book is ready: file://$(abspath $(PAGES))/index.html"

# After a build in which something failed it is older than all that it depends on, so the next one tries again.
$(PAGES)/.complete: $(INSTALLED) _config.yml _toc.yml $(BUILD)/files
	@echo 'Building the book; chapters that have changed are executed first, and each is named.'
	@$(BIN)/python -m dlsys.notebook.book $(OUTPUT) $(if $(filter 1,$(STRICT)),--strict)

# Changes when a file comes, goes or changes. Make itself never sees their names, which are anybody's.
$(BUILD)/files: FORCE
	@mkdir -p $(BUILD)
	@$(FILES) 2>/dev/null | LC_ALL=C sort > $@.now
	@if cmp -s $@.now $@ && [ -z "$$($(FILES) -newer $@ 2>/dev/null)" ]; then rm $@.now; else mv $@.now $@; fi

# One thread a worker: two to a core wait for each other.
test attacks look soak sweep: export OMP_NUM_THREADS := 1

test: $(INSTALLED)
	@$(BIN)/python -m pytest $(PARALLEL) --nbval $(patsubst %,--ignore=%,$(ATTACKS) $(BROWSER)) $(TESTS)

attacks: $(INSTALLED)
	@$(BIN)/python -m pytest $(PARALLEL) $(ATTACKS)

# They must run here, not skip.
look: export BOOK_TEST := required
look: STRICT := 1
look: book
	@$(BIN)/python -m pytest $(PARALLEL) $(LOOK)

anywhere:
	@.ci/anywhere $(ONLY)

soak: $(INSTALLED)
	@$(BIN)/python -m tests.mechanisms.soak

# CALLS=2000 SEED=7: fewer of them, and others.
CALLS := 50000
SEED := 0
sweep: $(INSTALLED)
	@$(BIN)/python -m tests.sweep --calls $(CALLS) --seed $(SEED)

lab: $(INSTALLED) $(LAB_SETTINGS)
	@$(BIN)/jupyter lab --log-level=ERROR --LabApp.log_level=ERROR --notebook-dir=. --LabApp.default_url=/lab/tree/chapters/intro.md $$(test $$(id -u) -ne 0 || echo --allow-root)

serve: book
	@$(BIN)/python -c 'import socket; socket.create_server(("127.0.0.1", $(PORT)))' 2>/dev/null || \
	    { echo 'Port $(PORT) is in use; choose another: make serve PORT=8001' >&2; exit 1; }
	@echo 'Stop with Ctrl-C.'
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(PAGES) $(PORT)

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

mutants: $(VENV)/mutants
	@$(BIN)/python -m tests.mechanisms.mutants $(CHAPTER)

$(VENV)/mutants: $(INSTALLED)
	@$(INSTALL) --editable '.[mutants]'
	@touch $@

release: $(INSTALLED)
	@$(BIN)/python -m dlsys.notebook.release

clean:
	rm -rf _build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# PYTHON=... names the interpreter to use; without it the first fitting one on the path is taken.
$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@set -e; \
	if ! $(BIN)/python -c '' 2>/dev/null; then \
	    found=; \
	    for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python); do \
	        if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo 'This book needs Python 3.11 or later, and none was found. Install one, or name it: make PYTHON=/path/to/python3' >&2; exit 1; \
	    fi; \
	    if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	        echo "$$found cannot make virtual environments. On Debian and Ubuntu install the package python3-venv." >&2; exit 1; \
	    fi; \
	    echo "Making $(VENV) with $$($$found --version)."; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	@echo 'Installing packages (a few minutes the first time).'
	@$(INSTALL) --upgrade pip
	@$(INSTALL) --no-compile --editable '.[book,grading,dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '$(RARELY)' $(VENV)/lib || true  # templates of code do not compile
	@mkdir -p $(VENV)/etc/ipython
	@echo 'c.IPKernelApp.log_level = "ERROR"  # kernels warn of TCP, which does not leave this machine' \
	    > $(VENV)/etc/ipython/ipython_kernel_config.py
	@touch $@

$(LAB_SETTINGS): Makefile $(INSTALLED)
	@mkdir -p $(@D)
	@echo '{"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Jupytext Notebook"}},' > $@
	@echo ' "@jupyterlab/apputils-extension:notification": {"checkForUpdates": false, "fetchNews": "false"}}' >> $@
	@mkdir -p $(VENV)/etc/jupyter
	@echo '# nbgrader warns where there is no such file.' > $(VENV)/etc/jupyter/nbgrader_config.py
