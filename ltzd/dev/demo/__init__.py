"""The demo data of `ltzd dev`: two brands, one brand's perks and items on chain, and a demo site.

`brands` applies the TOML files beside it, `offers` creates what they sell on the chain, and
`rotated_keys` keeps a rotated key for the next `dev.json`. `site/` holds the pages that the
sandbox serves. Begin with `brand.toml`.
"""
