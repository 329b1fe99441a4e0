import { ponder } from "ponder:registry";
import { balance, transfer } from "ponder:schema";
import { zeroAddress } from "viem";

ponder.on("LTZ:Transfer", async ({ event, context }) => {
  const { from, to, value } = event.args;
  await context.db.insert(transfer).values({
    blockHash: event.block.hash,
    logIndex: event.log.logIndex,
    blockNumber: event.block.number,
    transactionHash: event.transaction.hash,
    sender: from,
    recipient: to,
    amount: value,
  });
  if (from !== zeroAddress) {
    await context.db
      .insert(balance)
      .values({ wallet: from, amount: -value })
      .onConflictDoUpdate((row) => ({ amount: row.amount - value }));
  }
  if (to !== zeroAddress) {
    await context.db
      .insert(balance)
      .values({ wallet: to, amount: value })
      .onConflictDoUpdate((row) => ({ amount: row.amount + value }));
  }
});
