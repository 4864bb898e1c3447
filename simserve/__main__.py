"""`python -m simserve` is the command line."""

from simserve.cli import main

main()
