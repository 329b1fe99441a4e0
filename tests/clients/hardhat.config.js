// The node of tests/support/clients/hardhat.py: anvil's chain id, blocks on demand. By default Hardhat
// answers a mined transaction that reverts with an error, as no other node does.
export default {
  networks: {
    node: {
      type: "edr-simulated",
      chainType: "l1",
      chainId: 31337,
      throwOnTransactionFailures: false,
    },
  },
};
