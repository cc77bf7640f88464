"""`python -m heedful` is the same program as `heedful`."""

from heedful.cli import main

if __name__ == "__main__":
    main()
