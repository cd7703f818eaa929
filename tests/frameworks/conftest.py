"""Programs on frameworks of others are found by their names, also by the processes that run them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
