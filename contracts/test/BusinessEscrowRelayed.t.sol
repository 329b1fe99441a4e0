// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BusinessEscrow} from "../src/BusinessEscrow.sol";
import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {LTZ} from "../src/LTZ.sol";
import {Relayed} from "../src/Relayed.sol";
import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";
import {RelayedBehaviour} from "./support/RelayedBehaviour.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice BusinessEscrow's roles, permits and multicalls.
contract BusinessEscrowRelayed is BusinessEscrowSpec, RelayedBehaviour {
    function setUp() public override(BusinessEscrowSpec, RelayedSpec) {
        super.setUp();
    }

    function relayed() internal view override returns (Relayed) {
        return escrow;
    }

    function deploy(LTZ token, address admin) internal override returns (Relayed) {
        return new BusinessEscrow(token, admin, ADMIN_DELAY);
    }

    function ownInterface() internal pure override returns (bytes4) {
        return type(IBusinessEscrow).interfaceId;
    }

    function hotRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](1);
        roles[0] = RELAYER_ROLE;
    }

    function coldRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](4);
        (roles[0], roles[1], roles[2], roles[3]) = (REGISTRAR_ROLE, SETTLER_ROLE, ARBITER_ROLE, GUARDIAN_ROLE);
    }

    function payingCall() internal view override returns (bytes memory) {
        return abi.encodeCall(IBusinessEscrow.lockFor, (ann, bob, 5 ether, refundAfter, DEAL));
    }

    function test_its_own_roles_are_the_hashes_of_their_names() public view {
        vm.assertEq(escrow.REGISTRAR_ROLE(), REGISTRAR_ROLE);
        vm.assertEq(escrow.SETTLER_ROLE(), SETTLER_ROLE);
        vm.assertEq(escrow.ARBITER_ROLE(), ARBITER_ROLE);
    }

    function test_the_domain_is_the_published_one() public view {
        (, string memory name, string memory version, uint256 chainId, address target,,) = escrow.eip712Domain();
        vm.assertEq(name, "BusinessEscrow");
        vm.assertEq(version, "1");
        vm.assertEq(chainId, block.chainid);
        vm.assertEq(target, address(escrow));
    }

    function test_a_stolen_relay_key_settles_nothing() public {
        givenADeal();
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.NotAllowed.selector, DEAL, RELAYER));
        vm.prank(RELAYER);
        escrow.release(DEAL);
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.NotAllowed.selector, DEAL, RELAYER));
        vm.prank(RELAYER);
        escrow.refund(DEAL);
        expectMissingRole(RELAYER, ARBITER_ROLE);
        vm.prank(RELAYER);
        escrow.split(DEAL, 0);
        expectMissingRole(RELAYER, REGISTRAR_ROLE);
        vm.prank(RELAYER);
        escrow.setBusiness(RELAYER, true);
    }
}
