// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Burnable} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Burnable.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {ILTZ, Reward} from "./ILTZ.sol";

/// @title The Loyalty Token
/// @notice See {ILTZ}. Tokens come into being as rewards only; their holders may burn them.
contract LTZ is
    ILTZ,
    ERC20Permit,
    ERC20Burnable,
    // Not ERC20TransferAuthorization, which refuses the random nonces that wallets sign.
    ERC3009,
    AccessControlDefaultAdminRules,
    Multicall
{
    /// @notice May mint rewards, within its mint limit. Held by the operator's mint wallet.
    bytes32 public constant MINTER_ROLE = keccak256("MINTER_ROLE");

    /// @notice May take MINTER_ROLE away at once, and nothing else.
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");

    /// @dev Limits are kept in units of 10^12 wei: 88 bits of wei would end at 309 million LTZ.
    uint256 private constant LIMIT_UNIT = 1e12;

    /// @dev A token bucket in one storage slot. Full is `capacity`, which refills evenly over `window` seconds.
    struct Bucket {
        uint88 capacity;
        uint88 available;
        uint40 window;
        uint40 updatedAt;
    }

    mapping(uint256 word => uint256 bits) private _usedRefs;
    mapping(address minter => Bucket bucket) private _buckets;

    /// @param admin Holds DEFAULT_ADMIN_ROLE: grants and revokes roles, sets mint limits.
    /// @param adminDelay Seconds between the proposal of a new admin and its earliest acceptance.
    constructor(address admin, uint48 adminDelay)
        ERC20("Loyalty Token", "LTZ")
        ERC20Permit("Loyalty Token")
        AccessControlDefaultAdminRules(adminDelay, admin)
    {}

    /// @inheritdoc ILTZ
    function mintReward(address to, uint256 amount, bytes32 ref) external onlyRole(MINTER_ROLE) {
        if (!_use(ref)) revert RefAlreadyUsed(ref);
        _spend(_msgSender(), amount);
        _reward(to, amount, ref);
    }

    /// @inheritdoc ILTZ
    function mintRewardBatch(Reward[] calldata rewards) external onlyRole(MINTER_ROLE) returns (uint256 minted) {
        uint256 total = 0;
        // Neighbours with the same holder are a run: `sum` is what the run mints, in one transfer at its end.
        address holder = address(0);
        uint256 sum = 0;
        for (uint256 i = 0; i < rewards.length; ++i) {
            Reward calldata reward = rewards[i];
            address to = reward.to;
            if (to != holder) {
                // Zero before the first run, and if all rewards of the run were skipped.
                if (sum != 0) _mint(holder, sum);
                holder = to;
                sum = 0;
            }
            uint256 amount = reward.amount;
            bytes32 ref = reward.ref;
            if (_use(ref)) {
                if (amount == 0) revert ZeroAmount();
                sum += amount;
                total += amount;
                ++minted;
                emit RewardMinted(to, ref, amount);
            } else {
                emit RewardSkipped(to, ref, amount);
            }
        }
        if (sum != 0) _mint(holder, sum);
        // Once for the batch; over the limit, everything above is undone.
        _spend(_msgSender(), total);
    }

    /// @inheritdoc ILTZ
    function setMintLimit(address minter, uint256 capacity, uint40 window) external onlyRole(DEFAULT_ADMIN_ROLE) {
        uint256 units = capacity / LIMIT_UNIT;
        if (units > type(uint88).max || (units != 0 && window == 0)) revert BadMintLimit(capacity, window);
        Bucket memory old = _buckets[minter];
        uint256 spent = old.capacity - _refilled(old);
        // `units` was compared with the type's maximum.
        // forge-lint: disable-start(unsafe-typecast)
        _buckets[minter] = Bucket({
            capacity: uint88(units),
            available: uint88(Math.saturatingSub(units, spent)),
            window: window,
            updatedAt: uint40(block.timestamp)
        });
        // forge-lint: disable-end(unsafe-typecast)
        emit MintLimitSet(minter, units * LIMIT_UNIT, window);
    }

    /// @notice Take a role away. The admin of a role may always; GUARDIAN_ROLE may for MINTER_ROLE.
    /// @dev Reverts with `AccessControlUnauthorizedAccount`, or for DEFAULT_ADMIN_ROLE with
    /// `AccessControlEnforcedDefaultAdminRules`. A stolen minter key is stopped by this call, without the cold admin key.
    function revokeRole(bytes32 role, address account) public override {
        if (role == MINTER_ROLE && hasRole(GUARDIAN_ROLE, _msgSender())) {
            _revokeRole(role, account);
        } else {
            super.revokeRole(role, account);
        }
    }

    /// @inheritdoc ILTZ
    function multicall(bytes[] calldata data) public override(ILTZ, Multicall) returns (bytes[] memory results) {
        return super.multicall(data);
    }

    /// @inheritdoc ILTZ
    function isRefUsed(bytes32 ref) external view returns (bool) {
        (uint256 word, uint256 bit) = _place(ref);
        return _usedRefs[word] & bit != 0;
    }

    /// @inheritdoc ILTZ
    function refWord(uint256 word) external view returns (uint256) {
        return _usedRefs[word];
    }

    /// @inheritdoc ILTZ
    function mintLimit(address minter) external view returns (uint256 capacity, uint256 window, uint256 available) {
        Bucket memory bucket = _buckets[minter];
        return (bucket.capacity * LIMIT_UNIT, bucket.window, _refilled(bucket) * LIMIT_UNIT);
    }

    function _reward(address to, uint256 amount, bytes32 ref) private {
        if (amount == 0) revert ZeroAmount();
        _mint(to, amount);
        emit RewardMinted(to, ref, amount);
    }

    /// @dev Marks the reference as used; false, and nothing changed, when it was.
    function _use(bytes32 ref) private returns (bool fresh) {
        (uint256 word, uint256 bit) = _place(ref);
        uint256 bits = _usedRefs[word];
        fresh = bits & bit == 0;
        if (fresh) _usedRefs[word] = bits | bit;
    }

    /// @dev Only `seq`, the low 64 bits, has a place.
    function _place(bytes32 ref) private pure returns (uint256 word, uint256 bit) {
        uint256 seq = uint64(uint256(ref));
        // The lint expects a constant to be shifted by nothing but a constant.
        // forge-lint: disable-next-line(incorrect-shift)
        return (seq >> 8, 1 << (seq & 0xff));
    }

    /// @dev Rounds what is spent up, so that many small rewards cannot slip below the unit.
    function _spend(address minter, uint256 amount) private {
        Bucket memory bucket = _buckets[minter];
        uint256 available = _refilled(bucket);
        uint256 units = Math.ceilDiv(amount, LIMIT_UNIT);
        if (units > available) revert MintLimitExceeded(minter, amount, available * LIMIT_UNIT);
        // Never above the capacity, which is a uint88.
        // forge-lint: disable-next-line(unsafe-typecast)
        bucket.available = uint88(available - units);
        bucket.updatedAt = uint40(block.timestamp);
        _buckets[minter] = bucket;
    }

    /// @dev In units, rounded down. Without a limit the window is zero, and so is the capacity.
    function _refilled(Bucket memory bucket) private view returns (uint256 units) {
        uint256 elapsed = block.timestamp - bucket.updatedAt;
        if (elapsed >= bucket.window) return bucket.capacity;
        uint256 refill = (bucket.capacity * elapsed) / bucket.window;
        return Math.min(bucket.capacity, bucket.available + refill);
    }
}
