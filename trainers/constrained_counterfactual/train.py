"""`hf-credit train` as a script, for launchers of several processes:

accelerate launch --config_file trainers/accelerate/multi_gpu.yaml \
    trainers/constrained_counterfactual/train.py --config RECIPE

Every field of the recipe can be overridden behind it.
"""

import sys

from hf_credit.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
