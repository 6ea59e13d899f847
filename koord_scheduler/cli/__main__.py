"""``python -m koord_scheduler.cli``."""

import sys

from koord_scheduler.cli.main import main

sys.exit(main())
