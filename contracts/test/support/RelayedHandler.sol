// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

import {IRelayed} from "../../src/IRelayed.sol";
import {LTZ} from "../../src/LTZ.sol";
import {Relayed} from "../../src/Relayed.sol";
import {TypedSignatures} from "./TypedSignatures.sol";

/// @notice Does to a {Relayed} contract what users, operators and thieves do, in any order, and keeps its own books. It says
/// beforehand whether each call must succeed or with what it must fail, and reverts when the contract disagrees.
abstract contract RelayedHandler is TypedSignatures {
    /// @dev How a call for a user arrives.
    enum Way {
        Relayed,
        RelayedByAStranger,
        Signed,
        Forged,
        Late,
        Himself
    }

    bytes4 internal constant NO_ROLE = bytes4(keccak256("AccessControlUnauthorizedAccount(address,bytes32)"));
    bytes4 private constant NOT_ALLOWED = bytes4(keccak256("ERC20InsufficientAllowance(address,uint256,uint256)"));
    bytes4 private constant TOO_POOR = bytes4(keccak256("ERC20InsufficientBalance(address,uint256,uint256)"));
    address internal constant RELAYER = address(0x4E1A);
    address internal constant REGISTRAR = address(0x4E6);
    address internal constant STRANGER = address(0x57A);

    LTZ internal immutable ltz;
    address internal immutable target;
    uint256[4] private keys = [uint256(0xA1), 0xB2, 0xC3, 0xD4];
    address[] public users;
    bool private isOpen;

    /// @notice What each should hold, by the books.
    mapping(address holder => uint256 amount) public holds;
    /// @notice What should have been burned, by the books.
    uint256 public burned;
    /// @dev Signed calls that did their work. None may ever do it again.
    bytes[] private spent;
    mapping(bytes32 callHash => bool) private isSpent;

    constructor(Relayed target_) {
        (ltz, target) = (target_.ltz(), address(target_));
        for (uint256 i = 0; i < keys.length; ++i) {
            users.push(vm.addr(keys[i]));
        }
    }

    /// @notice When LTZ has been handed out. Only the first call counts: the fuzzer finds this one too.
    function openBooks() external {
        if (isOpen) return;
        isOpen = true;
        for (uint256 i = 0; i < users.length; ++i) {
            holds[users[i]] = ltz.balanceOf(users[i]);
        }
    }

    function userCount() external view returns (uint256) {
        return users.length;
    }

    // ---- what happens to all of them

    function approve(uint256 who, uint256 amount) external {
        attemptOn(address(ltz), pick(who), abi.encodeCall(IERC20.approve, (target, amount % 400 ether)), 0);
    }

    /// @dev Right or wrong: silent in any case.
    function permit(uint256 who, uint256 amount, bool forged, bool late, bool elsewhere) external {
        Permit memory given;
        given.owner = pick(who);
        given.spender = elsewhere ? STRANGER : target;
        given.value = amount % 400 ether;
        given.nonce = ltz.nonces(given.owner);
        given.deadline = late ? block.timestamp - 1 : block.timestamp;
        uint256 before = ltz.allowance(given.owner, target);
        Signature memory s = signPermit(forged ? 0xBAD : keyOf(who), ltz, given);
        attempt(
            STRANGER, abi.encodeCall(IRelayed.permitLTZ, (given.owner, given.value, given.deadline, s.v, s.r, s.s)), 0
        );
        uint256 expected = forged || late || elsewhere ? before : given.value;
        vm.assertEq(ltz.allowance(given.owner, target), expected, "allowance");
        vm.assertEq(ltz.allowance(given.owner, STRANGER), 0, "a stranger's allowance");
    }

    function pass(uint16 time) external {
        vm.warp(block.timestamp + time);
    }

    function replay(uint256 which) external {
        if (spent.length == 0) return;
        vm.prank(STRANGER);
        (bool succeeded,) = target.call(spent[which % spent.length]);
        vm.assertFalse(succeeded);
    }

    function strangersTry(uint256 who) external {
        address stranger = pick(who);
        bytes32 role = Relayed(target).RELAYER_ROLE();
        attempt(stranger, abi.encodeCall(IAccessControl.grantRole, (role, stranger)), NO_ROLE);
        attempt(stranger, abi.encodeCall(IAccessControl.revokeRole, (role, RELAYER)), NO_ROLE);
        attempt(RELAYER, abi.encodeCall(IAccessControl.grantRole, (role, stranger)), NO_ROLE);
    }

    // ---- the books

    /// @dev With what LTZ refuses to move the amount, or zero.
    function refusalToPay(address user, uint256 amount) internal view returns (bytes4) {
        if (amount == 0) return 0;
        if (ltz.allowance(user, target) < amount) return NOT_ALLOWED;
        return holds[user] < amount ? TOO_POOR : bytes4(0);
    }

    function book(address from, address to, uint256 amount) internal {
        holds[from] -= amount;
        holds[to] += amount;
    }

    function bookBurn(address from, uint256 amount) internal {
        holds[from] -= amount;
        burned += amount;
    }

    function bookSignature(bytes memory data) internal {
        vm.assertFalse(isSpent[keccak256(data)]);
        isSpent[keccak256(data)] = true;
        spent.push(data);
    }

    // ---- calls

    function deadlineOf(Way way) internal view returns (uint256) {
        return way == Way.Late ? block.timestamp - 1 : block.timestamp + 1 hours;
    }

    function signatureBy(uint256 who, Way way, string memory name, bytes32 structHash)
        internal
        view
        returns (bytes memory)
    {
        return signFor(way == Way.Forged ? keyOf(who) + 1 : keyOf(who), name, target, structHash);
    }

    /// @dev Makes the call and compares its outcome with the one foretold; zero foretells success.
    function attempt(address caller, bytes memory data, bytes4 reason) internal returns (bytes memory) {
        return attemptOn(target, caller, data, reason);
    }

    function attemptOn(address called, address caller, bytes memory data, bytes4 reason)
        private
        returns (bytes memory result)
    {
        bool succeeded;
        vm.prank(caller);
        (succeeded, result) = called.call(data);
        vm.assertEq(bytes32(succeeded ? bytes4(0) : bytes4(result)), bytes32(reason));
    }

    function pick(uint256 seed) internal view returns (address) {
        return users[seed % users.length];
    }

    function keyOf(uint256 seed) internal view returns (uint256) {
        return keys[seed % keys.length];
    }
}
