-- Facts and blocks are partitioned by height.
SELECT 1;
