// Runs web3.js' actions against the chain at a URL: node web3js.mjs http://127.0.0.1:8545
//
// Prints a JSON list of outcomes, as viem.mjs does.

import { Web3 } from "web3";
import { outcomesOf } from "./outcomes.mjs";
import { CLAIM, EMITTER, REVERTER, SOMEBODY, word } from "./scene.mjs";

const url = process.argv[2];
const methods = new Set();
const web3 = new Web3(url);
web3.transactionPollingInterval = 20;
web3.transactionBlockTimeout = 20;
const request = web3.currentProvider.request.bind(web3.currentProvider);
web3.currentProvider.request = (payload, ...rest) => {
  for (const { method } of [payload].flat()) methods.add(method);
  return request(payload, ...rest);
};
const { eth } = web3;
const [account] = await eth.getAccounts();
const chainId = Number(await eth.getChainId());
const typedData = {
  types: { EIP712Domain: [{ name: "name", type: "string" }, { name: "chainId", type: "uint256" }], Claim: CLAIM },
  primaryType: "Claim",
  domain: { name: "LTZ", chainId },
  message: { user: account, ids: [1, 2] },
};

const deployed = async (data) => (await eth.sendTransaction({ from: account, data })).contractAddress;
const emitter = await deployed(EMITTER);
const reverter = await deployed(REVERTER);
const emission = { from: account, to: emitter, data: word(1) + word(2).slice(2) };
const receipt = await eth.sendTransaction(emission);
const wallet = eth.accounts.privateKeyToAccount(word(0xcafe));

async function heardByWebSocket() {
  const listener = new Web3(url.replace("http", "ws"));
  try {
    const subscription = await listener.eth.subscribe("newBlockHeaders");
    const heard = new Promise((resolve) => subscription.once("data", resolve));
    await request({ jsonrpc: "2.0", id: 1, method: "evm_mine", params: [] });
    return typeof (await heard).number;
  } finally {
    listener.currentProvider.disconnect();
  }
}

const actions = [
  ["getChainId", () => eth.getChainId()],
  ["getNodeInfo", () => eth.getNodeInfo()],
  ["getBlockNumber", () => eth.getBlockNumber()],
  ["getBlock", () => eth.getBlock("latest", true)],
  ["getBlock (pending)", () => eth.getBlock("pending")],
  ["getBlockTransactionCount", () => eth.getBlockTransactionCount("latest")],
  ["getBalance", () => eth.getBalance(account)],
  ["getTransactionCount", () => eth.getTransactionCount(account, "pending")],
  ["getCode", () => eth.getCode(emitter)],
  ["getStorageAt", () => eth.getStorageAt(emitter, 0)],
  ["getProof", () => eth.getProof(emitter, [word(0)])],
  ["getGasPrice", () => eth.getGasPrice()],
  ["calculateFeeData", () => eth.calculateFeeData()],
  ["getFeeHistory", () => eth.getFeeHistory(2, "latest", [10, 90])],
  ["getTransaction", () => eth.getTransaction(receipt.transactionHash)],
  ["getTransactionReceipt", () => eth.getTransactionReceipt(receipt.transactionHash)],
  ["getPastLogs", () => eth.getPastLogs({ address: emitter, fromBlock: 0 })],
  ["call", () => eth.call(emission)],
  ["call (revert)", () => eth.call({ from: account, to: reverter, data: "0x08c379a0" })],
  ["estimateGas", () => eth.estimateGas(emission)],
  ["createAccessList", () => eth.createAccessList(emission)],
  ["sign", () => eth.sign(web3.utils.utf8ToHex("hello"), account)],
  ["signTypedData", () => eth.signTypedData(account, typedData)],
  ["personal.sign", () => eth.personal.sign(web3.utils.utf8ToHex("hello"), account, "")],
  ["sendTransaction", () => eth.sendTransaction({ from: account, to: wallet.address, value: 10n ** 18n }), undefined, ["eth_sendTransaction", "eth_getTransactionReceipt"]],
  ["sendSignedTransaction", async () => {
    const gasPrice = await eth.getGasPrice();
    const signed = await wallet.signTransaction({ to: SOMEBODY, value: 1n, gas: 21_000n, gasPrice, nonce: 0n, chainId });
    return eth.sendSignedTransaction(signed.rawTransaction);
  }, undefined, ["eth_sendRawTransaction", "eth_getTransactionReceipt"]],
  ["subscribe (newBlockHeaders)", heardByWebSocket, undefined, ["eth_subscribe"]],
];

const outcomes = await outcomesOf(actions, methods);
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
