"""PyTorch's own operator and module tables, run on a reference device and on the device under test, and compared.

    cd tests/python && python -m opinfo --help

Reading order: cases.py (what is run), samples.py (its inputs), runs.py (one call on one device), compare.py (two runs
against each other), kinds/ (what a kind of test asks of a sample), harness.py (one case), skips.py, results.py,
table.py, command.py.
"""
