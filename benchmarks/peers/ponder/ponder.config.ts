import { createConfig } from "ponder";
import { TRANSFER } from "./abi";

// The query makes 16 URLs of one: Ponder limits the requests to each of them.
const urls = Array.from({ length: 16 }, (_, n) => `${process.env.RPC_URL}/?n=${n}`);

export default createConfig({
  chains: { local: { id: 31337, rpc: urls } },
  contracts: {
    LTZ: {
      chain: "local",
      abi: TRANSFER,
      address: process.env.LTZ as `0x${string}`,
      startBlock: Number(process.env.FIRST_BLOCK),
    },
  },
});
