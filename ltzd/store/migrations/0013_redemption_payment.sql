-- Which fact on chain paid a site redemption.
SELECT 1;
