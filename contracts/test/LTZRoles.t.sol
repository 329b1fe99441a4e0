// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ILTZ} from "../src/ILTZ.sol";
import {LTZ} from "../src/LTZ.sol";
import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice Who may do what, and how that changes.
contract LTZRoles is LTZSpec {
    event RoleRevoked(bytes32 indexed role, address indexed account, address indexed sender);

    function test_the_roles_are_the_hashes_of_their_names() public view {
        vm.assertEq(minterRole, keccak256("MINTER_ROLE"));
        vm.assertEq(guardianRole, keccak256("GUARDIAN_ROLE"));
    }

    function test_a_deployment_needs_an_admin() public {
        vm.expectRevert(abi.encodeWithSignature("AccessControlInvalidDefaultAdmin(address)", address(0)));
        new LTZ(address(0), ADMIN_DELAY);
    }

    function test_the_deployer_holds_no_role_unless_it_is_the_admin() public view {
        vm.assertFalse(ltz.hasRole(ADMIN_ROLE, address(this)));
        vm.assertFalse(ltz.hasRole(minterRole, address(this)));
        vm.assertTrue(ltz.hasRole(ADMIN_ROLE, ADMIN));
    }

    function test_a_guardian_stops_a_minter_at_once() public {
        vm.expectEmit(address(ltz));
        emit RoleRevoked(minterRole, MINTER, GUARDIAN);
        vm.prank(GUARDIAN);
        ltz.revokeRole(minterRole, MINTER);
        expectMissingRole(MINTER, minterRole);
        mint(ann, 1, refOf(1));
    }

    function test_the_admin_stops_a_minter_too() public {
        vm.prank(ADMIN);
        ltz.revokeRole(minterRole, MINTER);
        vm.assertFalse(ltz.hasRole(minterRole, MINTER));
    }

    function test_the_admin_dismisses_a_guardian() public {
        vm.prank(ADMIN);
        ltz.revokeRole(guardianRole, GUARDIAN);
        expectMissingRole(GUARDIAN, ADMIN_ROLE);
        vm.prank(GUARDIAN);
        ltz.revokeRole(minterRole, MINTER);
    }

    function test_a_guardian_revokes_no_other_role() public {
        expectMissingRole(GUARDIAN, ADMIN_ROLE);
        vm.prank(GUARDIAN);
        ltz.revokeRole(guardianRole, GUARDIAN);
        vm.expectRevert(abi.encodeWithSignature("AccessControlEnforcedDefaultAdminRules()"));
        vm.prank(GUARDIAN);
        ltz.revokeRole(ADMIN_ROLE, ADMIN);
    }

    function test_a_guardian_grants_nothing() public {
        bytes32[2] memory roles = [minterRole, guardianRole];
        for (uint256 i = 0; i < roles.length; ++i) {
            expectMissingRole(GUARDIAN, ADMIN_ROLE);
            vm.prank(GUARDIAN);
            ltz.grantRole(roles[i], GUARDIAN);
        }
    }

    function test_a_minter_grants_and_revokes_nothing() public {
        expectMissingRole(MINTER, ADMIN_ROLE);
        vm.prank(MINTER);
        ltz.grantRole(minterRole, STRANGER);
        expectMissingRole(MINTER, ADMIN_ROLE);
        vm.prank(MINTER);
        ltz.revokeRole(minterRole, MINTER);
    }

    function test_a_stranger_stops_nobody() public {
        expectMissingRole(STRANGER, ADMIN_ROLE);
        vm.prank(STRANGER);
        ltz.revokeRole(minterRole, MINTER);
        vm.assertTrue(ltz.hasRole(minterRole, MINTER));
    }

    function test_a_minter_may_renounce_its_role() public {
        vm.prank(MINTER);
        ltz.renounceRole(minterRole, MINTER);
        vm.assertFalse(ltz.hasRole(minterRole, MINTER));
    }

    function test_a_new_admin_takes_over_only_after_the_delay() public {
        vm.prank(ADMIN);
        ltz.beginDefaultAdminTransfer(ann);
        vm.warp(block.timestamp + ADMIN_DELAY);
        vm.expectRevert(
            abi.encodeWithSignature("AccessControlEnforcedDefaultAdminDelay(uint48)", uint48(block.timestamp))
        );
        vm.prank(ann);
        ltz.acceptDefaultAdminTransfer();
        vm.warp(block.timestamp + 1);
        vm.prank(ann);
        ltz.acceptDefaultAdminTransfer();
        vm.assertEq(ltz.owner(), ann);
        vm.assertFalse(ltz.hasRole(ADMIN_ROLE, ADMIN));
    }

    function test_a_multicall_acts_as_its_caller() public {
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeWithSelector(ltz.grantRole.selector, minterRole, STRANGER);
        calls[1] = abi.encodeCall(ILTZ.setMintLimit, (STRANGER, 5 ether, WINDOW));
        vm.prank(ADMIN);
        ltz.multicall(calls);
        vm.assertTrue(ltz.hasRole(minterRole, STRANGER));
        vm.assertEq(available(STRANGER), 5 ether);
    }

    function test_a_multicall_lends_nobody_a_role() public {
        bytes[] memory calls = new bytes[](1);
        calls[0] = abi.encodeCall(ILTZ.mintReward, (ann, 1, refOf(1)));
        expectMissingRole(STRANGER, minterRole);
        vm.prank(STRANGER);
        ltz.multicall(calls);
    }

    function test_a_multicall_that_fails_undoes_all_of_it() public {
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(ILTZ.mintReward, (ann, 1 ether, refOf(1)));
        calls[1] = abi.encodeCall(ILTZ.mintReward, (bob, 1 ether, refOf(1)));
        vm.expectRevert(abi.encodeWithSelector(ILTZ.RefAlreadyUsed.selector, refOf(1)));
        vm.prank(MINTER);
        ltz.multicall(calls);
        vm.assertEq(ltz.totalSupply(), 0);
    }

    function test_a_multicall_returns_what_its_calls_return() public {
        bytes[] memory calls = new bytes[](1);
        calls[0] = abi.encodeCall(ILTZ.mintRewardBatch, (one(ann, 1 ether, refOf(1))));
        vm.prank(MINTER);
        bytes[] memory results = ltz.multicall(calls);
        vm.assertEq(abi.decode(results[0], (uint256)), 1);
    }
}
