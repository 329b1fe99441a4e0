"""Names of hosts: their normal form, the domains of a brand, and the URLs in customers' files.

Begin with `names`. `txt_records` reads the TXT record by which a domain names its brand, and
`customer_urls` refuses URLs that ltzd must not request.
"""
