"""`python -m recommender` is the same as `phasewise`."""

from recommender.cli.main import main

if __name__ == "__main__":
    main()
