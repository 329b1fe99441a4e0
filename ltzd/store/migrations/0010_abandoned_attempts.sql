-- Signed bytes that every node refuses, and the nonce they leave to a self-transfer.
SELECT 1;
