import { onchainTable, primaryKey } from "ponder";

export const transfer = onchainTable(
  "transfer",
  (t) => ({
    blockHash: t.hex().notNull(),
    logIndex: t.integer().notNull(),
    blockNumber: t.bigint().notNull(),
    transactionHash: t.hex().notNull(),
    sender: t.hex().notNull(),
    recipient: t.hex().notNull(),
    amount: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.blockHash, table.logIndex] }) }),
);

export const balance = onchainTable("balance", (t) => ({
  wallet: t.hex().primaryKey(),
  amount: t.bigint().notNull(),
}));
