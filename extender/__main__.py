"""`python -m extender` is `phasewise`."""

from extender.cli.main import main

if __name__ == "__main__":
    main()
