"""The demo brands' webhook receiver.

`inbox` receives deliveries, shows them and lets tests choose the answers; `delivery_log` stores
them. Begin with `inbox`.
"""
