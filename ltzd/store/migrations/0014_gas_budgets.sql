-- The gas that each identity, and everybody together, cost a day.
SELECT 1;
