"""`python -m hotspare` is the `hotspare` command."""

from hotspare.cli.main import main

if __name__ == "__main__":
    main()
