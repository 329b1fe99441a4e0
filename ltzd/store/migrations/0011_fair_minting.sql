-- The mint queue by brand, and why a lane waits.
SELECT 1;
