"""`python -m recommender` is `phasewise` without the commands of the extender."""

from recommender.cli.main import main

if __name__ == "__main__":
    main()
