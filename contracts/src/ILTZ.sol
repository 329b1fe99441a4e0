// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @notice One reward of a batch.
/// @param to Who receives it.
/// @param amount In wei of LTZ (10^-18 LTZ), more than zero.
/// @param ref The reward's reference, see {ILTZ}.
struct Reward {
    address to;
    uint96 amount;
    bytes32 ref;
}

/// @title The Loyalty Token
/// @notice ERC-20 with 18 decimals, EIP-2612 permits, ERC-3009 authorizations and role-based minting of rewards.
///
/// Amounts are in wei of LTZ everywhere, the mint limit included; times are in seconds.
///
/// A reference (`ref`) is 32 bytes: `uuid (16) | kind (1) | zero (7) | seq (8)`. The contract refuses a `seq` that has
/// been used, whatever the other 24 bytes are, and gives those no meaning of its own: who reads the log compares all 32.
interface ILTZ {
    /// @notice A reward was minted. `mintReward` logs it after the ERC-20 `Transfer` from the zero address. A batch logs one
    /// `Transfer` for each run of neighbours with the same holder, after their `RewardMinted`, with the sum of their amounts.
    event RewardMinted(address indexed to, bytes32 indexed ref, uint256 amount);

    /// @notice A batch held a reference whose `seq` was used before; nothing was minted for it.
    event RewardSkipped(address indexed to, bytes32 indexed ref, uint256 amount);

    /// @notice A minter's limit is now `capacity` wei per `window` seconds.
    event MintLimitSet(address indexed minter, uint256 capacity, uint256 window);

    /// @notice The `seq` of this reference has been used.
    error RefAlreadyUsed(bytes32 ref);

    /// @notice The minter's bucket holds `available` wei, less than the `wanted` wei.
    error MintLimitExceeded(address minter, uint256 wanted, uint256 available);

    /// @notice A reward of nothing.
    error ZeroAmount();

    /// @notice The limit has no window, or its capacity is above (2^88 - 1) * 10^12 wei.
    error BadMintLimit(uint256 capacity, uint256 window);

    /// @notice Mint one reward.
    /// @dev Only MINTER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `ZeroAmount`, `RefAlreadyUsed`,
    /// `MintLimitExceeded`, or `ERC20InvalidReceiver` for the zero address.
    /// @param to Who receives it.
    /// @param amount In wei, more than zero.
    /// @param ref The reward's reference; its `seq` must be unused.
    function mintReward(address to, uint256 amount, bytes32 ref) external;

    /// @notice Mint many rewards; one whose `seq` is used, even earlier in this batch, is skipped with `RewardSkipped`,
    /// so that sending a batch again is safe. Neighbours with the same holder cost less gas: their sum is transferred once.
    /// @dev Only MINTER_ROLE. Reverts as a whole with `AccessControlUnauthorizedAccount`, `ZeroAmount`,
    /// `MintLimitExceeded` (for the sum of what is not skipped), or `ERC20InvalidReceiver` for the zero address.
    /// @param rewards Amounts in wei. May be empty.
    /// @return minted How many rewards were minted; the others were skipped.
    function mintRewardBatch(Reward[] calldata rewards) external returns (uint256 minted);

    /// @notice Let `minter` mint at most `capacity` wei at once, refilled evenly over `window` seconds. What it has
    /// spent stays spent: only a minter without a limit starts with a full bucket. Zero capacity stops it.
    /// @dev Only DEFAULT_ADMIN_ROLE. Reverts with `AccessControlUnauthorizedAccount` or `BadMintLimit`.
    /// @param minter Whose limit; it still needs MINTER_ROLE to mint.
    /// @param capacity In wei, rounded down to a multiple of 10^12.
    /// @param window In seconds; zero only with zero capacity.
    function setMintLimit(address minter, uint256 capacity, uint40 window) external;

    /// @notice Whether the `seq` of this reference has been used, under this or another uuid.
    /// @dev Anyone. Never reverts.
    function isRefUsed(bytes32 ref) external view returns (bool);

    /// @notice 256 `seq`s at a time: bit `i` (lowest is 0) of word `w` says whether seq `256 * w + i` has been used.
    /// @dev Anyone. Never reverts; a word above 2^56 - 1 is always zero.
    function refWord(uint256 word) external view returns (uint256);

    /// @notice A minter's limit, and what it may mint in this block.
    /// @dev Anyone. Never reverts; all zero for a minter without a limit, which can mint nothing.
    /// @return capacity In wei.
    /// @return window In seconds.
    /// @return available In wei.
    function mintLimit(address minter) external view returns (uint256 capacity, uint256 window, uint256 available);

    /// @notice Several calls to this contract in one transaction, each as the caller, all or nothing.
    /// @dev Anyone. Reverts with what the first failing call reverts with.
    /// @param data Encoded calls, in order.
    /// @return results What each call returned, encoded.
    function multicall(bytes[] calldata data) external returns (bytes[] memory results);
}
