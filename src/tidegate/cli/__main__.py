"""``python -m tidegate.cli``: the command line where no script is installed, as ranks are started."""

import sys

from tidegate.cli.app import main

sys.exit(main())
