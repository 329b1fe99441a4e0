// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";

import {LTZ} from "../../src/LTZ.sol";
import {ILTZ, Reward} from "../../src/ILTZ.sol";
import {Authorizations} from "./Authorizations.sol";

/// @notice Does to LTZ what users, wallets and thieves do, in any order, and keeps its own books.
/// It says beforehand whether each call must succeed or with what it must fail, and reverts when LTZ disagrees.
contract LTZHandler is Authorizations {
    uint256 private constant UNIT = 1e12;
    // Few enough that references repeat and words are shared, enough to cross from one word to the next.
    uint256 private constant SEQS = 300;
    address private constant ADMIN = address(0xAD);
    address private constant GUARDIAN = address(0x6A);
    bytes4 private constant NO_ROLE = bytes4(keccak256("AccessControlUnauthorizedAccount(address,bytes32)"));
    bytes4 private constant TOO_POOR = bytes4(keccak256("ERC20InsufficientBalance(address,uint256,uint256)"));
    bytes4 private constant NONCE_USED = bytes4(keccak256("ERC3009UsedAuthorization(address,bytes32)"));
    bytes4 private constant BAD_SIGNATURE = bytes4(keccak256("ERC3009InvalidSignature()"));

    LTZ public immutable ltz;
    bytes32 private immutable minterRole;
    uint256[4] private keys = [uint256(0xA1), 0xB2, 0xC3, 0xD4];
    address[] public users;
    address[] public minters;

    // The books, kept without a look at how LTZ keeps its own. Limits are in units of 10^12 wei, as LTZ promises.
    uint256 public minted;
    uint256 public burned;
    mapping(uint256 seq => bool) private used;
    uint256[2] public expectedWords;
    uint256 public rewardsMinted;
    mapping(address minter => uint256 units) public mintedBy;
    mapping(address minter => uint256 units) private allowedBefore;
    mapping(address minter => uint256 timestamp) private meteredAt;

    constructor(LTZ token) {
        ltz = token;
        minterRole = token.MINTER_ROLE();
        for (uint256 i = 0; i < keys.length; ++i) {
            users.push(vm.addr(keys[i]));
        }
        minters = [address(0x3147), address(0x3148)];
        for (uint256 i = 0; i < minters.length; ++i) {
            (,, uint256 available) = token.mintLimit(minters[i]);
            allowedBefore[minters[i]] = units(available);
            meteredAt[minters[i]] = block.timestamp;
        }
    }

    // ---- minting

    function mint(uint256 who, uint256 user, uint256 amount, uint256 seq, uint64 uuid) external {
        address minter = minters[who % minters.length];
        seq %= SEQS;
        amount = amount % 20 ether;
        bytes4 reason = refusal(minter, amount);
        if (reason != NO_ROLE && used[seq]) reason = ILTZ.RefAlreadyUsed.selector;
        else if (reason == 0 && amount == 0) reason = ILTZ.ZeroAmount.selector;
        attempt(minter, abi.encodeCall(ILTZ.mintReward, (pick(user), amount, refOf(uuid, seq))), reason);
        if (reason == 0) book(minter, amount, one(seq));
    }

    function mintBatch(uint256 who, uint256 seed, uint64 uuid) external {
        address minter = minters[who % minters.length];
        Reward[] memory rewards = new Reward[](seed % 9);
        uint256[] memory fresh = new uint256[](rewards.length);
        uint256 count = 0;
        uint256 sum = 0;
        for (uint256 i = 0; i < rewards.length; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            // A dozen neighbours, so that one batch often holds a reference twice.
            uint256 seq = (uuid % 25) * 12 + seed % 12;
            rewards[i] = Reward(pick(seed >> 8), uint96(1 + (seed >> 16) % 4 ether), refOf(uuid, seq));
            if (used[seq] || holds(fresh, count, seq)) continue;
            fresh[count++] = seq;
            sum += rewards[i].amount;
        }
        bytes4 reason = refusal(minter, sum);
        bytes memory result = attempt(minter, abi.encodeCall(ILTZ.mintRewardBatch, (rewards)), reason);
        if (reason != 0) return;
        vm.assertEq(abi.decode(result, (uint256)), count, "how many a batch minted");
        assembly ("memory-safe") {
            mstore(fresh, count)
        }
        book(minter, sum, fresh);
    }

    function setLimit(uint256 who, uint256 capacity, uint40 window) external {
        address minter = minters[who % minters.length];
        meter(minter);
        capacity %= 200 ether;
        (uint256 old,,) = ltz.mintLimit(minter);
        attempt(ADMIN, abi.encodeCall(ILTZ.setMintLimit, (minter, capacity, 1 + window % 1 days)), 0);
        if (capacity > old) allowedBefore[minter] += units(capacity - old);
    }

    function pass(uint32 time) external {
        for (uint256 i = 0; i < minters.length; ++i) {
            meter(minters[i]);
        }
        vm.warp(block.timestamp + time % 6 hours);
    }

    // ---- holding

    function transfer(uint256 from, uint256 to, uint256 amount) external {
        (address payer, uint256 value) = (pick(from), amount % 30 ether);
        bytes4 reason = value > ltz.balanceOf(payer) ? TOO_POOR : bytes4(0);
        attempt(payer, abi.encodeWithSignature("transfer(address,uint256)", pick(to), value), reason);
    }

    function burn(uint256 from, uint256 amount) external {
        (address holder, uint256 value) = (pick(from), amount % 10 ether);
        bytes4 reason = value > ltz.balanceOf(holder) ? TOO_POOR : bytes4(0);
        attempt(holder, abi.encodeWithSignature("burn(uint256)", value), reason);
        if (reason == 0) burned += value;
    }

    /// @dev Nonces are few, so that used ones come again.
    function payBySignature(uint256 from, uint256 to, uint256 amount, uint256 nonce, bool forged) external {
        uint256 key = keys[from % keys.length];
        Payment memory signed =
            Payment(vm.addr(key), pick(to), amount % 5 ether, 0, type(uint256).max, bytes32(nonce % 16));
        bytes4 reason = signed.value > ltz.balanceOf(signed.from) ? TOO_POOR : bytes4(0);
        if (ltz.authorizationState(signed.from, signed.nonce)) reason = NONCE_USED;
        if (forged) reason = BAD_SIGNATURE;
        Signature memory signature = signPayment(forged ? key + 1 : key, ltz, TRANSFER, signed);
        attempt(address(this), transferCall(signed, signature), reason);
    }

    // ---- roles, and those who have none

    function guardianRevokes(uint256 who) external {
        // Seldom, or nobody would ever mint.
        if (who % 8 != 0) return;
        attempt(GUARDIAN, abi.encodeCall(ltz.revokeRole, (minterRole, minters[(who >> 8) % minters.length])), 0);
    }

    function adminGrants(uint256 who) external {
        attempt(ADMIN, abi.encodeCall(ltz.grantRole, (minterRole, minters[who % minters.length])), 0);
    }

    function strangersTry(uint256 who, uint256 seq) external {
        address stranger = pick(who);
        bytes32 ref = refOf(1, seq % SEQS);
        Reward[] memory rewards = new Reward[](1);
        rewards[0] = Reward(stranger, 1 ether, ref);
        attempt(stranger, abi.encodeCall(ILTZ.mintReward, (stranger, 1 ether, ref)), NO_ROLE);
        attempt(stranger, abi.encodeCall(ILTZ.mintRewardBatch, (rewards)), NO_ROLE);
        attempt(stranger, abi.encodeCall(ILTZ.setMintLimit, (stranger, 1 ether, 1)), NO_ROLE);
        attempt(stranger, abi.encodeCall(ltz.grantRole, (minterRole, stranger)), NO_ROLE);
        attempt(GUARDIAN, abi.encodeCall(ltz.grantRole, (minterRole, GUARDIAN)), NO_ROLE);
    }

    // ---- the books

    function userCount() external view returns (uint256) {
        return users.length;
    }

    function minterCount() external view returns (uint256) {
        return minters.length;
    }

    /// @notice What a minter's limits have let it mint since the beginning, in units.
    function allowedTo(address minter) public view returns (uint256) {
        (uint256 capacity, uint256 window,) = ltz.mintLimit(minter);
        uint256 elapsed = block.timestamp - meteredAt[minter];
        uint256 refilled = window == 0 ? 0 : units(capacity * elapsed / window);
        return allowedBefore[minter] + refilled;
    }

    /// @dev To be called before time or a limit changes.
    function meter(address minter) private {
        allowedBefore[minter] = allowedTo(minter);
        meteredAt[minter] = block.timestamp;
    }

    function book(address minter, uint256 amount, uint256[] memory seqs) private {
        minted += amount;
        rewardsMinted += seqs.length;
        mintedBy[minter] += units(amount);
        for (uint256 i = 0; i < seqs.length; ++i) {
            used[seqs[i]] = true;
            expectedWords[seqs[i] / 256] |= 1 << (seqs[i] % 256);
        }
    }

    function refusal(address minter, uint256 amount) private view returns (bytes4) {
        if (!ltz.hasRole(minterRole, minter)) return NO_ROLE;
        (,, uint256 left) = ltz.mintLimit(minter);
        return units(amount) * UNIT > left ? ILTZ.MintLimitExceeded.selector : bytes4(0);
    }

    /// @dev Makes the call and compares its outcome with the one foretold; zero foretells success.
    function attempt(address caller, bytes memory data, bytes4 reason) private returns (bytes memory result) {
        bool succeeded;
        vm.prank(caller);
        (succeeded, result) = address(ltz).call(data);
        bytes4 actual = succeeded ? bytes4(0) : bytes4(result);
        vm.assertEq(bytes32(actual), bytes32(reason));
    }

    function transferCall(Payment memory paid, Signature memory signed) private pure returns (bytes memory) {
        return abi.encodeCall(
            IERC3009.transferWithAuthorization,
            (
                paid.from,
                paid.to,
                paid.value,
                paid.validAfter,
                paid.validBefore,
                paid.nonce,
                signed.v,
                signed.r,
                signed.s
            )
        );
    }

    function holds(uint256[] memory seqs, uint256 count, uint256 wanted) private pure returns (bool) {
        for (uint256 i = 0; i < count; ++i) {
            if (seqs[i] == wanted) return true;
        }
        return false;
    }

    function one(uint256 seq) private pure returns (uint256[] memory seqs) {
        seqs = new uint256[](1);
        seqs[0] = seq;
    }

    function pick(uint256 seed) private view returns (address) {
        return users[seed % users.length];
    }

    function units(uint256 amount) private pure returns (uint256) {
        return (amount + UNIT - 1) / UNIT;
    }

    function refOf(uint64 uuid, uint256 seq) private pure returns (bytes32) {
        return bytes32((uint256(uuid) << 128) | (uint256(1) << 120) | seq);
    }
}
