// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../src/IPointsSale.sol";
import {LTZ} from "../src/LTZ.sol";
import {PointsSale} from "../src/PointsSale.sol";
import {Relayed} from "../src/Relayed.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";
import {RelayedBehaviour} from "./support/RelayedBehaviour.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice PointsSale's roles, permits and multicalls.
contract PointsSaleRelayed is PointsSaleSpec, RelayedBehaviour {
    function setUp() public override(PointsSaleSpec, RelayedSpec) {
        super.setUp();
    }

    function relayed() internal view override returns (Relayed) {
        return sale;
    }

    function deploy(LTZ token, address admin) internal override returns (Relayed) {
        return new PointsSale(token, admin, ADMIN_DELAY);
    }

    function ownInterface() internal pure override returns (bytes4) {
        return type(IPointsSale).interfaceId;
    }

    function hotRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](1);
        roles[0] = RELAYER_ROLE;
    }

    function coldRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](2);
        (roles[0], roles[1]) = (REGISTRAR_ROLE, GUARDIAN_ROLE);
    }

    function payingCall() internal view override returns (bytes memory) {
        return abi.encodeCall(IPointsSale.buyFor, (ann, MUG, 1, PRICE, REF));
    }

    function test_its_own_role_is_the_hash_of_its_name() public view {
        vm.assertEq(sale.REGISTRAR_ROLE(), REGISTRAR_ROLE);
    }

    function test_the_domain_is_the_published_one() public view {
        (, string memory name, string memory version, uint256 chainId, address target,,) = sale.eip712Domain();
        vm.assertEq(name, "PointsSale");
        vm.assertEq(version, "1");
        vm.assertEq(chainId, block.chainid);
        vm.assertEq(target, address(sale));
    }

    function test_a_multicall_returns_what_its_calls_return() public {
        allow(ann, address(sale), PRICE);
        bytes[] memory calls = new bytes[](1);
        calls[0] = payingCall();
        vm.prank(RELAYER);
        bytes[] memory results = sale.multicall(calls);
        vm.assertEq(abi.decode(results[0], (uint256)), PRICE);
    }
}
