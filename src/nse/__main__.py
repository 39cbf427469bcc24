"""`python -m nse` is the command `nse`."""

from nse.cli.main import main

if __name__ == "__main__":
    main()
