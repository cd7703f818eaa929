"""`hf-credit train` as a script, for launchers of several processes:

accelerate launch --config_file trainers/accelerate/fsdp2.yaml trainers/counterfactual_grpo/train.py --config RECIPE

Every field of the recipe can be overridden behind it.
"""

import sys

from hf_credit.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
