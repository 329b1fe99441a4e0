// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";
import {
    IAccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/IAccessControlDefaultAdminRules.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {IERC165} from "@openzeppelin/contracts/utils/introspection/IERC165.sol";

import {IRelayed} from "../../src/IRelayed.sol";
import {LTZ} from "../../src/LTZ.sol";
import {Relayed} from "../../src/Relayed.sol";
import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice What each {Relayed} contract must do. A suite inherits this and names its contract and a call that costs LTZ.
abstract contract RelayedBehaviour is RelayedSpec {
    event RoleRevoked(bytes32 indexed role, address indexed account, address indexed sender);

    uint256 private constant PRICE = 5 ether;

    /// @dev The contract, in which each role has its holder.
    function relayed() internal view virtual returns (Relayed);

    function deploy(LTZ token, address admin) internal virtual returns (Relayed);

    function ownInterface() internal pure virtual returns (bytes4);

    function hotRoles() internal view virtual returns (bytes32[] memory);

    function coldRoles() internal view virtual returns (bytes32[] memory);

    /// @dev A call only the relayer may make, by which Ann pays five LTZ.
    function payingCall() internal view virtual returns (bytes memory);

    // ---- roles

    function test_the_roles_of_all_are_the_hashes_of_their_names() public view {
        vm.assertEq(relayed().RELAYER_ROLE(), RELAYER_ROLE);
        vm.assertEq(relayed().GUARDIAN_ROLE(), GUARDIAN_ROLE);
    }

    function test_it_takes_the_ltz_it_was_deployed_with() public view {
        vm.assertEq(address(relayed().ltz()), address(ltz));
    }

    function test_a_deployment_needs_an_admin() public {
        vm.expectRevert(abi.encodeWithSignature("AccessControlInvalidDefaultAdmin(address)", address(0)));
        deploy(ltz, address(0));
    }

    function test_a_deployment_needs_a_contract_for_ltz() public {
        vm.expectRevert(abi.encodeWithSelector(IRelayed.NotLTZ.selector, STRANGER));
        deploy(LTZ(STRANGER), ADMIN);
    }

    function test_a_deployment_gives_the_admin_its_role_and_nobody_any_other() public {
        Relayed fresh = deploy(ltz, ADMIN);
        vm.assertTrue(fresh.hasRole(ADMIN_ROLE, ADMIN));
        vm.assertFalse(fresh.hasRole(ADMIN_ROLE, address(this)));
        vm.assertFalse(fresh.hasRole(RELAYER_ROLE, ADMIN));
        vm.assertFalse(fresh.hasRole(GUARDIAN_ROLE, ADMIN));
    }

    function test_a_guardian_stops_a_hot_key_at_once() public {
        bytes32[] memory roles = hotRoles();
        Relayed target = relayed();
        for (uint256 i = 0; i < roles.length; ++i) {
            grantOn(address(target), roles[i], RELAYER);
            vm.expectEmit(address(target));
            emit RoleRevoked(roles[i], RELAYER, GUARDIAN);
            vm.prank(GUARDIAN);
            target.revokeRole(roles[i], RELAYER);
            vm.assertFalse(target.hasRole(roles[i], RELAYER));
        }
        expectMissingRole(RELAYER, RELAYER_ROLE);
        send(RELAYER, address(target), payingCall());
    }

    function test_a_guardian_takes_no_cold_role() public {
        bytes32[] memory roles = coldRoles();
        Relayed target = relayed();
        for (uint256 i = 0; i < roles.length; ++i) {
            expectMissingRole(GUARDIAN, ADMIN_ROLE);
            vm.prank(GUARDIAN);
            target.revokeRole(roles[i], STRANGER);
        }
        vm.expectRevert(abi.encodeWithSignature("AccessControlEnforcedDefaultAdminRules()"));
        vm.prank(GUARDIAN);
        target.revokeRole(ADMIN_ROLE, ADMIN);
    }

    function test_only_the_admin_grants() public {
        address[3] memory others = [GUARDIAN, RELAYER, STRANGER];
        Relayed target = relayed();
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], ADMIN_ROLE);
            vm.prank(others[i]);
            target.grantRole(RELAYER_ROLE, others[i]);
        }
    }

    function test_a_stranger_stops_nobody() public {
        Relayed target = relayed();
        expectMissingRole(STRANGER, ADMIN_ROLE);
        vm.prank(STRANGER);
        target.revokeRole(RELAYER_ROLE, RELAYER);
        vm.assertTrue(target.hasRole(RELAYER_ROLE, RELAYER));
    }

    function test_the_admin_takes_any_role() public {
        Relayed target = relayed();
        vm.prank(ADMIN);
        target.revokeRole(RELAYER_ROLE, RELAYER);
        vm.prank(ADMIN);
        target.revokeRole(GUARDIAN_ROLE, GUARDIAN);
        vm.assertFalse(target.hasRole(RELAYER_ROLE, RELAYER));
        vm.assertFalse(target.hasRole(GUARDIAN_ROLE, GUARDIAN));
    }

    function test_a_new_admin_takes_over_only_after_the_delay() public {
        Relayed target = relayed();
        vm.prank(ADMIN);
        target.beginDefaultAdminTransfer(ann);
        vm.warp(block.timestamp + ADMIN_DELAY);
        vm.expectRevert(
            abi.encodeWithSignature("AccessControlEnforcedDefaultAdminDelay(uint48)", uint48(block.timestamp))
        );
        vm.prank(ann);
        target.acceptDefaultAdminTransfer();
        vm.warp(block.timestamp + 1);
        vm.prank(ann);
        target.acceptDefaultAdminTransfer();
        vm.assertEq(target.owner(), ann);
    }

    function test_it_names_its_interfaces() public view {
        Relayed target = relayed();
        vm.assertTrue(target.supportsInterface(ownInterface()));
        vm.assertTrue(target.supportsInterface(type(IRelayed).interfaceId));
        vm.assertTrue(target.supportsInterface(type(IERC165).interfaceId));
        vm.assertTrue(target.supportsInterface(type(IAccessControl).interfaceId));
        vm.assertTrue(target.supportsInterface(type(IAccessControlDefaultAdminRules).interfaceId));
        vm.assertFalse(target.supportsInterface(0xffffffff));
    }

    // ---- permits

    function permission() private view returns (Permit memory) {
        return Permit(ann, address(relayed()), PRICE, ltz.nonces(ann), block.timestamp);
    }

    function permitCall(Permit memory given, Signature memory signed) private pure returns (bytes memory) {
        return
            abi.encodeCall(IRelayed.permitLTZ, (given.owner, given.value, given.deadline, signed.v, signed.r, signed.s));
    }

    function permitAndPay(Permit memory given, Signature memory signed) private returns (bytes[] memory) {
        bytes[] memory calls = new bytes[](2);
        calls[0] = permitCall(given, signed);
        calls[1] = payingCall();
        Relayed target = relayed();
        vm.prank(RELAYER);
        return target.multicall(calls);
    }

    function test_a_permit_names_this_contract_and_anyone_may_bring_it() public {
        Permit memory given = permission();
        send(STRANGER, address(relayed()), permitCall(given, signPermit(ANN_KEY, ltz, given)));
        vm.assertEq(ltz.allowance(ann, address(relayed())), PRICE);
        vm.assertEq(ltz.allowance(ann, STRANGER), 0);
        vm.assertEq(ltz.nonces(ann), 1);
    }

    function test_permit_and_payment_travel_in_one_transaction_and_leave_no_allowance() public {
        Permit memory given = permission();
        permitAndPay(given, signPermit(ANN_KEY, ltz, given));
        vm.assertEq(ltz.balanceOf(ann), FUNDS - PRICE);
        vm.assertEq(ltz.allowance(ann, address(relayed())), 0);
    }

    function test_a_permit_published_before_does_no_harm() public {
        Permit memory given = permission();
        Signature memory signed = signPermit(ANN_KEY, ltz, given);
        vm.prank(STRANGER);
        IERC20Permit(ltz).permit(given.owner, given.spender, given.value, given.deadline, signed.v, signed.r, signed.s);
        permitAndPay(given, signed);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - PRICE);
    }

    function test_a_bad_permit_is_silent_and_allows_nothing() public {
        Permit memory given = permission();
        Signature memory forged = signPermit(BOB_KEY, ltz, given);
        send(STRANGER, address(relayed()), permitCall(given, forged));
        given.deadline = block.timestamp - 1;
        Signature memory late = signPermit(ANN_KEY, ltz, given);
        send(STRANGER, address(relayed()), permitCall(given, late));
        send(STRANGER, address(relayed()), permitCall(given, Signature(0, 0, 0)));
        vm.assertEq(ltz.allowance(ann, address(relayed())), 0);
    }

    function test_a_permit_to_another_spender_allows_nothing() public {
        Permit memory given = permission();
        given.spender = STRANGER;
        send(STRANGER, address(relayed()), permitCall(given, signPermit(ANN_KEY, ltz, given)));
        vm.assertEq(ltz.allowance(ann, address(relayed())), 0);
        vm.assertEq(ltz.allowance(ann, STRANGER), 0);
    }

    function test_without_an_allowance_a_payment_is_refused_and_undone() public {
        Permit memory given = permission();
        Signature memory forged = signPermit(BOB_KEY, ltz, given);
        vm.expectRevert(
            abi.encodeWithSignature(
                "ERC20InsufficientAllowance(address,uint256,uint256)", address(relayed()), uint256(0), PRICE
            )
        );
        permitAndPay(given, forged);
    }

    function test_a_payment_above_the_balance_is_refused() public {
        allow(ann, address(relayed()), FUNDS);
        vm.prank(ann);
        vm.assertTrue(ltz.transfer(bob, FUNDS - PRICE + 1));
        vm.expectRevert(
            abi.encodeWithSignature("ERC20InsufficientBalance(address,uint256,uint256)", ann, PRICE - 1, PRICE)
        );
        send(RELAYER, address(relayed()), payingCall());
    }

    // ---- multicalls

    function test_only_the_relayer_speaks_for_a_user() public {
        allow(ann, address(relayed()), PRICE);
        address[4] memory others = [ADMIN, GUARDIAN, REGISTRAR, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], RELAYER_ROLE);
            send(others[i], address(relayed()), payingCall());
        }
    }

    function test_a_multicall_acts_as_its_caller() public {
        allow(ann, address(relayed()), PRICE);
        bytes[] memory calls = new bytes[](1);
        calls[0] = payingCall();
        Relayed target = relayed();
        expectMissingRole(STRANGER, RELAYER_ROLE);
        vm.prank(STRANGER);
        target.multicall(calls);
    }

    function test_a_multicall_that_fails_undoes_all_of_it() public {
        allow(ann, address(relayed()), PRICE);
        bytes[] memory calls = new bytes[](2);
        calls[0] = payingCall();
        calls[1] = abi.encodeCall(IAccessControl.grantRole, (RELAYER_ROLE, RELAYER));
        Relayed target = relayed();
        expectMissingRole(RELAYER, ADMIN_ROLE);
        vm.prank(RELAYER);
        target.multicall(calls);
        vm.assertEq(ltz.balanceOf(ann), FUNDS);
    }

    function test_an_empty_multicall_is_allowed() public {
        vm.assertEq(relayed().multicall(new bytes[](0)).length, 0);
    }
}
