"""`/ltzd.js`, the script with which a brand's page detects and sends its customer events.

Begin in `handlers.py`. The script itself is `ltzd.js`; docs/sites/tracker.md describes it.
"""
