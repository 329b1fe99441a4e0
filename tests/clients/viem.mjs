// Runs viem's actions against the chain at a URL: node viem.mjs http://127.0.0.1:8545
//
// Prints a JSON list: for each action its JSON-RPC methods, and the shape of its answer or its refusal.

import {
  createPublicClient,
  createTestClient,
  createWalletClient,
  custom,
  http,
  parseAbi,
  parseEther,
  parseGwei,
  publicActions,
  walletActions,
  webSocket,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { setTimeout } from "node:timers/promises";
import { outcomesOf } from "./outcomes.mjs";
import { CLAIM, EMITTER, SIGNATURES, REVERTER, SOMEBODY, word } from "./scene.mjs";

const url = process.argv[2];
const node = http(url, { retryCount: 0 })({});
const methods = new Set();
const transport = custom(
  {
    async request({ method, params }) {
      methods.add(method);
      return node.request({ method, params });
    },
  },
  { retryCount: 0 },
);
const socket = webSocket(url.replace("http", "ws"), { retryCount: 0 });
const options = { transport, pollingInterval: 20, cacheTime: 0 };
const reader = createPublicClient(options);
const chainId = await reader.getChainId();
const chain = {
  id: chainId,
  name: "dev",
  nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: [url] } },
};
const wallet = createWalletClient({ ...options, chain });
const test = createTestClient({ ...options, chain, mode: "anvil" })
  .extend(publicActions)
  .extend(walletActions);
const listener = createPublicClient({ transport: socket });
// Prepares and mines beside the actions: its methods are not theirs.
const aside = createTestClient({ transport: http(url), chain, mode: "anvil" });
const [account] = await wallet.getAddresses();
const local = privateKeyToAccount(generatePrivateKey());
const somebody = SOMEBODY;
const abi = parseAbi(SIGNATURES);
const reason = {
  abi,
  functionName: "Error",
  args: ["no more claims"],
};
const typedData = {
  domain: { name: "LTZ", version: "1", chainId },
  types: { Claim: CLAIM },
  primaryType: "Claim",
  message: { user: account, ids: [1n, 2n] },
};

async function deployed(bytecode) {
  const hash = await wallet.sendTransaction({ account, data: bytecode });
  return (await reader.waitForTransactionReceipt({ hash })).contractAddress;
}

function emit(first = 1) {
  const data = `${word(first)}${word(2).slice(2)}`;
  return wallet.sendTransaction({ account, to: emitterAddress, data });
}

async function mined(sending) {
  const hash = await sending;
  await reader.waitForTransactionReceipt({ hash });
  return hash;
}

async function nonceOf(address, wanted) {
  while ((await reader.getTransactionCount({ address })) < wanted) await setTimeout(20);
}

function next(watch) {
  return new Promise((resolve, reject) => {
    const stop = watch({
      received(value) {
        stop();
        resolve(value);
      },
      onError: reject,
    });
    setTimeout(30_000, null, { ref: false }).then(() => reject(new Error("no notification")));
  });
}

async function nextMined(watch) {
  let mining;
  const mine = () => aside.mine({ blocks: 1 }).catch(() => {});
  try {
    // Again until the subscription has begun.
    mining = setInterval(mine, 100);
    return await next(watch);
  } finally {
    clearInterval(mining);
  }
}

const emitterAddress = await deployed(EMITTER);
const reverterAddress = await deployed(REVERTER);
const sent = await emit();
await reader.waitForTransactionReceipt({ hash: sent });
const block = await reader.getBlock();
let filter, serializedTransaction, signature, snapshot, state, timestamp, waiting;

const reads = [
  ["getChainId", () => reader.getChainId()],
  ["getBlockNumber", () => reader.getBlockNumber()],
  ["getBlock", () => reader.getBlock()],
  ["getBlock (pending)", () => reader.getBlock({ blockTag: "pending" })],
  ["getBlock (by hash, with transactions)", () => reader.getBlock({ blockHash: block.hash, includeTransactions: true })],
  ["getBlock (unknown)", () => reader.getBlock({ blockNumber: 99_999n })],
  ["getBlockTransactionCount", () => reader.getBlockTransactionCount()],
  ["getBalance", () => reader.getBalance({ address: account })],
  ["getTransactionCount", () => reader.getTransactionCount({ address: account, blockTag: "pending" })],
  ["getCode", () => reader.getCode({ address: emitterAddress })],
  ["getStorageAt", () => reader.getStorageAt({ address: emitterAddress, slot: "0x0" })],
  ["getProof", () => reader.getProof({ address: emitterAddress, storageKeys: [word(0)] })],
  ["getGasPrice", () => reader.getGasPrice()],
  ["estimateMaxPriorityFeePerGas", () => reader.estimateMaxPriorityFeePerGas()],
  ["estimateFeesPerGas", () => reader.estimateFeesPerGas()],
  ["getFeeHistory", () => reader.getFeeHistory({ blockCount: 2, rewardPercentiles: [10, 90] })],
  ["getBlobBaseFee", () => reader.getBlobBaseFee()],
  ["getTransaction", () => reader.getTransaction({ hash: sent })],
  ["getTransaction (unknown)", () => reader.getTransaction({ hash: word(7) })],
  ["getTransaction (by index)", () => reader.getTransaction({ blockHash: block.hash, index: 0 })],
  ["getTransactionReceipt", () => reader.getTransactionReceipt({ hash: sent })],
  ["getTransactionReceipt (unknown)", () => reader.getTransactionReceipt({ hash: word(7) })],
  ["getTransactionConfirmations", () => reader.getTransactionConfirmations({ hash: sent })],
  ["waitForTransactionReceipt", () => reader.waitForTransactionReceipt({ hash: sent })],
  ["getLogs", () => reader.getLogs({ address: emitterAddress, fromBlock: 0n })],
  ["getLogs (by block hash)", () => reader.getLogs({ blockHash: block.hash })],
  ["call", () => reader.call({ account, to: emitterAddress, data: word(1) })],
  ["call (revert)", () => reader.simulateContract({ ...reason, address: reverterAddress, account })],
  ["call (state override)", () => reader.call({ to: somebody, stateOverride: [{ address: somebody, code: "0x4760005260206000f3", balance: 5n }] })],
  ["call (block override)", () => reader.call({ to: somebody, stateOverride: [{ address: somebody, code: "0x4260005260206000f3" }], blockOverrides: { time: 2_000_000_000n } })],
  ["call (code without an account)", () => reader.call({ code: "0x602a60005260206000f3", data: "0x" })],
  ["estimateGas", () => reader.estimateGas({ account, to: emitterAddress, data: word(1) })],
  ["estimateGas (revert)", () => reader.estimateContractGas({ ...reason, address: reverterAddress, account })],
  ["estimateGas (state override)", () => reader.estimateGas({ account: somebody, to: account, value: 1n, stateOverride: [{ address: somebody, balance: parseEther("1") }] })],
  ["createAccessList", () => reader.createAccessList({ account, to: emitterAddress, data: word(1) })],
  ["simulateBlocks", () => reader.simulateBlocks({ blocks: [{ calls: [{ account, to: somebody, value: 1n }] }] })],
  ["verifyMessage", () => reader.verifyMessage({ address: account, message: "hello", signature }), async () => { signature = await wallet.signMessage({ account, message: "hello" }); }],
  ["verifyTypedData", () => reader.verifyTypedData({ ...typedData, address: account, signature }), async () => { signature = await wallet.signTypedData({ ...typedData, account }); }],
];

const filters = [
  ["createBlockFilter", async () => { filter = await reader.createBlockFilter(); return filter; }],
  ["getFilterChanges (blocks)", () => reader.getFilterChanges({ filter }), () => test.mine({ blocks: 1 })],
  ["uninstallFilter", () => reader.uninstallFilter({ filter })],
  ["getFilterChanges (unknown)", () => reader.getFilterChanges({ filter })],
  ["createEventFilter", async () => { filter = await reader.createEventFilter({ address: emitterAddress }); return filter; }],
  ["getFilterChanges (logs)", () => reader.getFilterChanges({ filter }), () => mined(emit())],
  ["getFilterLogs", () => reader.getFilterLogs({ filter })],
  ["createPendingTransactionFilter", async () => { filter = await reader.createPendingTransactionFilter(); return filter; }],
  ["getFilterChanges (transactions)", () => reader.getFilterChanges({ filter }), () => mined(emit())],
  ["watchBlockNumber (WebSocket)", () => nextMined(({ received, onError }) => listener.watchBlockNumber({ onBlockNumber: received, onError })), () => {}, ["eth_subscribe"]],
  ["watchBlocks (WebSocket)", () => nextMined(({ received, onError }) => listener.watchBlocks({ onBlock: received, onError })), () => {}, ["eth_subscribe"]],
];

const writes = [
  ["getAddresses", () => wallet.getAddresses()],
  ["prepareTransactionRequest", () => wallet.prepareTransactionRequest({ account, to: somebody, value: 1n })],
  ["sendTransaction", () => wallet.sendTransaction({ account, to: somebody, value: 1n })],
  ["sendTransaction (unknown account)", () => wallet.sendTransaction({ account: somebody, to: account, gas: 21_000n })],
  ["sendTransaction (no funds)", async () => wallet.sendTransaction({ account: local, to: somebody, value: 1n, gas: 21_000n, maxFeePerGas: parseGwei("10"), nonce: 0 })],
  ["sendTransaction (local account)", () => wallet.sendTransaction({ account: local, to: somebody, value: 1n }), () => test.setBalance({ address: local.address, value: parseEther("2") })],
  ["sendTransaction (nonce too low)", () => wallet.sendTransaction({ account: local, to: somebody, nonce: 0, gas: 21_000n }), () => nonceOf(local.address, 1)],
  ["sendRawTransactionSync", () => wallet.sendRawTransactionSync({ serializedTransaction }), async () => { serializedTransaction = await local.signTransaction(await wallet.prepareTransactionRequest({ account: local, to: somebody })); }],
  ["signMessage", () => wallet.signMessage({ account, message: "hello" })],
  ["signMessage (unknown account)", () => wallet.signMessage({ account: somebody, message: "hello" })],
  ["signTypedData", () => wallet.signTypedData({ ...typedData, account })],
  ["signTransaction", () => wallet.signTransaction({ account, to: somebody, value: 1n, gas: 21_000n, nonce: 1_000 })],
  ["deployContract", () => wallet.deployContract({ abi, account, bytecode: EMITTER })],
  ["writeContract", () => wallet.writeContract({ abi, account, address: emitterAddress, functionName: "emitted", args: [1n, 2n] })],
];

const settings = [
  ["snapshot", async () => { snapshot = await test.snapshot(); return snapshot; }],
  ["setBalance", () => test.setBalance({ address: somebody, value: parseEther("3") })],
  ["setCode", () => test.setCode({ address: somebody, bytecode: "0x602a60005260206000f3" })],
  ["setNonce", () => test.setNonce({ address: somebody, nonce: 7 })],
  ["setStorageAt", () => test.setStorageAt({ address: somebody, index: 3, value: word(9) })],
  ["setStorageAt (slot as a word)", () => test.setStorageAt({ address: somebody, index: word(3), value: word(9) })],
  ["setCoinbase", () => test.setCoinbase({ address: somebody })],
  ["impersonateAccount", () => test.impersonateAccount({ address: somebody })],
  ["sendTransaction (impersonated)", () => wallet.sendTransaction({ account: somebody, to: account, value: 1n, gas: 50_000n })],
  ["stopImpersonatingAccount", () => test.stopImpersonatingAccount({ address: somebody })],
  ["sendUnsignedTransaction", () => test.sendUnsignedTransaction({ from: somebody, to: account, value: 1n, gas: 50_000n })],
  ["getAutomine", () => test.getAutomine()],
  ["setAutomine", () => test.setAutomine(false)],
  ["sendTransaction (to the pool)", async () => { waiting = await wallet.sendTransaction({ account, to: local.address, value: 1n }); return waiting; }],
  ["getTxpoolStatus", () => test.getTxpoolStatus()],
  ["getTxpoolContent", async () => Object.keys((await test.getTxpoolContent()).pending).length],
  ["inspectTxpool", async () => Object.keys((await test.inspectTxpool()).pending).length],
  ["getTransaction (in the pool)", () => reader.getTransaction({ hash: waiting })],
  ["dropTransaction", () => test.dropTransaction({ hash: waiting })],
  ["setIntervalMining", () => test.setIntervalMining({ interval: 0 })],
  ["setAutomine (again)", () => test.setAutomine(true)],
  ["increaseTime", () => test.increaseTime({ seconds: 10 })],
  ["setNextBlockTimestamp", () => test.setNextBlockTimestamp({ timestamp }), async () => { timestamp = (await reader.getBlock()).timestamp + 100n; }],
  ["setBlockTimestampInterval", () => test.setBlockTimestampInterval({ interval: 5 })],
  ["mine", () => test.mine({ blocks: 2 })],
  ["mine (with an interval)", () => test.mine({ blocks: 2, interval: 4 })],
  ["removeBlockTimestampInterval", () => test.removeBlockTimestampInterval()],
  ["setBlockGasLimit", () => test.setBlockGasLimit({ gasLimit: 40_000_000n })],
  ["setNextBlockBaseFeePerGas", () => test.setNextBlockBaseFeePerGas({ baseFeePerGas: parseGwei("2") })],
  ["setMinGasPrice", () => test.setMinGasPrice({ gasPrice: 1n })],
  ["setLoggingEnabled", () => test.setLoggingEnabled(true)],
  ["setRpcUrl", () => test.setRpcUrl("http://127.0.0.1:1")],
  ["dumpState", async () => { state = await test.dumpState(); return state; }],
  ["revert", () => test.revert({ id: snapshot })],
  ["loadState", () => test.loadState({ state })],
  ["reset", () => test.reset()],
];

const groups = { reads, filters, writes, settings };
const outcomes = {};
for (const [group, actions] of Object.entries(groups)) outcomes[group] = await outcomesOf(actions, methods);
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
