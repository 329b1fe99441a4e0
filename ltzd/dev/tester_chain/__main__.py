"""`python -m ltzd.dev.tester_chain`."""

import sys

from ltzd.dev.tester_chain.server import main

sys.exit(main())
