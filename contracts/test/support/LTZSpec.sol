// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LTZ} from "../../src/LTZ.sol";
import {Reward} from "../../src/ILTZ.sol";
import {Authorizations} from "./Authorizations.sol";
import {Vm} from "./Vm.sol";

/// @notice A deployed LTZ with one holder of each role, and words to speak about it.
abstract contract LTZSpec is Authorizations {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event RewardMinted(address indexed to, bytes32 indexed ref, uint256 amount);
    event RewardSkipped(address indexed to, bytes32 indexed ref, uint256 amount);
    event MintLimitSet(address indexed minter, uint256 capacity, uint256 window);

    uint256 internal constant ANN_KEY = 0xA11CE;
    uint256 internal constant BOB_KEY = 0xB0B;
    address internal constant ADMIN = address(0xAD);
    address internal constant GUARDIAN = address(0x6A);
    address internal constant MINTER = address(0x3147);
    address internal constant STRANGER = address(0x57A);
    uint48 internal constant ADMIN_DELAY = 2 days;
    uint256 internal constant CAPACITY = 1_000_000 ether;
    uint40 internal constant WINDOW = 1 days;

    bytes32 internal constant ADMIN_ROLE = 0;
    bytes32 internal minterRole;
    bytes32 internal guardianRole;
    address internal ann;
    address internal bob;
    LTZ internal ltz;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        ann = vm.addr(ANN_KEY);
        bob = vm.addr(BOB_KEY);
        ltz = new LTZ(ADMIN, ADMIN_DELAY);
        minterRole = ltz.MINTER_ROLE();
        guardianRole = ltz.GUARDIAN_ROLE();
        grant(minterRole, MINTER);
        grant(guardianRole, GUARDIAN);
        limit(MINTER, CAPACITY, WINDOW);
    }

    function grant(bytes32 role, address account) internal {
        vm.prank(ADMIN);
        ltz.grantRole(role, account);
    }

    function limit(address minter, uint256 capacity, uint40 window) internal {
        vm.prank(ADMIN);
        ltz.setMintLimit(minter, capacity, window);
    }

    function mint(address to, uint256 amount, bytes32 ref) internal {
        vm.prank(MINTER);
        ltz.mintReward(to, amount, ref);
    }

    function mintBatch(Reward[] memory rewards) internal returns (uint256) {
        vm.prank(MINTER);
        return ltz.mintRewardBatch(rewards);
    }

    function available(address minter) internal view returns (uint256 left) {
        (,, left) = ltz.mintLimit(minter);
    }

    /// @dev uuid | kind 1 | zeros | seq.
    function refOf(uint64 seq) internal pure returns (bytes32) {
        return refOf(uint128(uint256(keccak256(abi.encode(seq)))), seq);
    }

    function refOf(uint128 uuid, uint64 seq) internal pure returns (bytes32) {
        return bytes32((uint256(uuid) << 128) | (uint256(1) << 120) | seq);
    }

    function one(address to, uint96 amount, bytes32 ref) internal pure returns (Reward[] memory rewards) {
        rewards = new Reward[](1);
        rewards[0] = Reward(to, amount, ref);
    }

    function two(Reward memory first, Reward memory second) internal pure returns (Reward[] memory rewards) {
        rewards = new Reward[](2);
        rewards[0] = first;
        rewards[1] = second;
    }

    function expectMissingRole(address account, bytes32 role) internal {
        vm.expectRevert(abi.encodeWithSignature("AccessControlUnauthorizedAccount(address,bytes32)", account, role));
    }

    function between(uint256 seed, uint256 least, uint256 most) internal pure returns (uint256) {
        return least + seed % (most - least + 1);
    }
}
