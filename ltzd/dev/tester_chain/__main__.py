"""Entry point of `python -m ltzd.dev.tester_chain`."""

import sys

from ltzd.dev.tester_chain.json_rpc.server import main

sys.exit(main())
