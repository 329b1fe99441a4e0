// Bytecode and data that the clients' actions share.

// Counts its calls in slot 0 and logs its calldata with the first two words as topics.
export const EMITTER = "0x601a80600b6000396000f3366000600037600160005401600055602035600035366000a200";
// Reverts with its calldata.
export const REVERTER = "0x600a80600b6000396000f3366000600037366000fd";
export const SOMEBODY = "0x00000000000000000000000000000000000000A1";
// Signatures of calls.
export const SIGNATURES = ["function emitted(uint256 first, uint256 second)", "function Error(string reason)"];
export const CLAIM = [
  { name: "user", type: "address" },
  { name: "ids", type: "uint256[]" },
];

export const word = (number) => `0x${number.toString(16).padStart(64, "0")}`;
