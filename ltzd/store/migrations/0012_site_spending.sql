-- What a site session may spend: earnings per member, links by code, the split of each payment.
SELECT 1;
