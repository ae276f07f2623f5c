"""
``python -m headgate COMMAND …``: the same as ``headgate COMMAND …``.
"""

import sys

from headgate.cli.main import main

sys.exit(main())
