-- The state of a rebuild, which fills fresh tables beside the live ones.
SELECT 1;
