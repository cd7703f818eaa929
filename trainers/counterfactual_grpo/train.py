"""`hf-credit train` as a script, for launchers of several processes:

accelerate launch --config_file trainers/accelerate/CONFIG.yaml trainers/METHOD/train.py --config RECIPE

Every field of the recipe can be overridden after it. A recipe names its method, so all of these scripts are the same.
"""

import sys

from hf_credit.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
