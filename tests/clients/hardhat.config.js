// The node of tests/support/chain/hardhat.py: the chain id is anvil's, and blocks are mined on demand.
export default {
  networks: { node: { type: "edr-simulated", chainType: "l1", chainId: 31337 } },
};
