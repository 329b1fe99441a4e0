// Runs ethers' actions against the chain at a URL: node ethers.mjs http://127.0.0.1:8545
//
// Prints a JSON list of outcomes, as viem.mjs does.

import { Contract, JsonRpcProvider, Network, Wallet, WebSocketProvider, ZeroHash, parseEther } from "ethers";
import { outcomesOf } from "./outcomes.mjs";
import { CLAIM, EMITTER, SIGNATURES, REVERTER, SOMEBODY, word } from "./scene.mjs";

const url = process.argv[2];
const methods = new Set();

class RecordingProvider extends JsonRpcProvider {
  async _send(payload) {
    for (const { method } of [payload].flat()) methods.add(method);
    return super._send(payload);
  }
}

const chainId = (await new JsonRpcProvider(url).getNetwork()).chainId;
const network = Network.from(chainId);
const settings = { staticNetwork: network, cacheTimeout: -1, pollingInterval: 20 };
const provider = new RecordingProvider(url, network, settings);
const signer = await provider.getSigner(0);
const account = await signer.getAddress();
const typed = [{ name: "LTZ", chainId }, { Claim: CLAIM }, { user: account, ids: [1n, 2n] }];

async function deployed(data) {
  return (await (await signer.sendTransaction({ data })).wait()).contractAddress;
}

// The fields of ethers' objects are getters and private: JSON has what is public.
const plain = (object) => JSON.parse(JSON.stringify(object, (_, value) => (typeof value === "bigint" ? Number(value) : value)));

const emitter = new Contract(await deployed(EMITTER), SIGNATURES, signer);
const reverter = new Contract(await deployed(REVERTER), SIGNATURES, signer);
const receipt = await (await emitter.emitted(1n, 2n)).wait();
const block = await provider.getBlock("latest");
const wallet = new Wallet(word(0xbeef), provider);

// ethers polls in pairs with its own rhythm, so only the outcomes of these are compared.
async function heard(source, event) {
  const value = new Promise((resolve) => source.once(event, resolve));
  await (await emitter.emitted(3n, 4n)).wait();
  await provider.send("evm_mine", []);
  return typeof (await value);
}

async function heardByWebSocket() {
  const socket = new WebSocketProvider(url.replace("http", "ws"), network);
  try {
    await socket.send("eth_chainId", []);
    const listening = new Promise((resolve) => socket.once("block", resolve));
    await socket._waitUntilReady();
    const mining = setInterval(() => provider.send("evm_mine", []), 100);
    try {
      return typeof (await listening);
    } finally {
      clearInterval(mining);
    }
  } finally {
    await socket.destroy();
  }
}

const actions = [
  ["getNetwork", async () => plain(await provider.getNetwork())],
  ["getBlockNumber", () => provider.getBlockNumber()],
  ["getBlock", async () => plain(await provider.getBlock("latest", true))],
  ["getBlock (pending)", async () => plain(await provider.getBlock("pending"))],
  ["getBlock (unknown)", () => provider.getBlock(99_999)],
  ["getBalance", () => provider.getBalance(account)],
  ["getTransactionCount", () => provider.getTransactionCount(account, "pending")],
  ["getCode", () => provider.getCode(emitter.target)],
  ["getStorage", () => provider.getStorage(emitter.target, 0)],
  ["getFeeData", async () => plain(await provider.getFeeData())],
  ["getTransaction", async () => plain(await provider.getTransaction(receipt.hash))],
  ["getTransaction (unknown)", () => provider.getTransaction(ZeroHash)],
  ["getTransactionReceipt", async () => plain(await provider.getTransactionReceipt(receipt.hash))],
  ["getLogs", async () => plain(await provider.getLogs({ address: emitter.target, fromBlock: 0 }))],
  ["getLogs (by block hash)", async () => plain(await provider.getLogs({ blockHash: block.hash }))],
  ["call", () => provider.call({ to: emitter.target, data: word(1) })],
  ["call (revert)", () => reverter.Error.staticCall("no more claims")],
  ["estimateGas", () => emitter.emitted.estimateGas(1n, 2n)],
  ["estimateGas (revert)", () => reverter.Error.estimateGas("no more claims")],
  ["listAccounts", async () => (await provider.listAccounts()).length > 0],
  ["signMessage", () => signer.signMessage("hello")],
  ["signTypedData", () => signer.signTypedData(...typed)],
  ["sendTransaction", async () => (await (await signer.sendTransaction({ to: wallet.address, value: parseEther("1") })).wait()).status, undefined, ["eth_sendTransaction", "eth_getTransactionReceipt"]],
  ["sendTransaction (local wallet)", async () => (await (await wallet.sendTransaction({ to: SOMEBODY, value: 1n })).wait()).status, undefined, ["eth_sendRawTransaction", "eth_getTransactionReceipt"]],
  ["sendTransaction (nonce too low)", () => wallet.sendTransaction({ to: SOMEBODY, nonce: 0 })],
  ["sendTransaction (no funds)", () => wallet.sendTransaction({ to: SOMEBODY, value: parseEther("9"), gasLimit: 21_000n })],
  ["once (block, polled)", () => heard(provider, "block"), undefined, []],
  ["once (logs, polled)", () => heard(provider, { address: emitter.target }), undefined, []],
  ["once (block, WebSocket)", heardByWebSocket, undefined, ["eth_subscribe"]],
];

const outcomes = await outcomesOf(actions, methods);
process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
