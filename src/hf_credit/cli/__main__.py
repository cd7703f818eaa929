"""`python -m hf_credit.cli` is `hf-credit`."""

from hf_credit.cli import main

if __name__ == "__main__":
    main()
