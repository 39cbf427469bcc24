"""`python -m nse` is the command `nse`."""

from nse.cli import main

if __name__ == "__main__":
    main()
