"""Let accuracy tests import the scorers next to them (pytest's importlib mode adds no path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
