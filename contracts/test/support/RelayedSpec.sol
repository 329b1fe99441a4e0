// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";

import {LTZSpec} from "./LTZSpec.sol";
import {TypedSignatures} from "./TypedSignatures.sol";

/// @notice LTZ in the hands of Ann and Bob, the holders of the other contracts' roles, and words to sign and send calls.
abstract contract RelayedSpec is LTZSpec, TypedSignatures {
    bytes32 internal constant RELAYER_ROLE = keccak256("RELAYER_ROLE");
    bytes32 internal constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");
    bytes32 internal constant REGISTRAR_ROLE = keccak256("REGISTRAR_ROLE");

    address internal constant RELAYER = address(0x4E1A);
    address internal constant REGISTRAR = address(0x4E6);
    address internal constant BRAND = address(0xB4A2D);
    address internal constant PAYOUT = address(0x9A7);

    uint256 internal constant FUNDS = 1_000 ether;

    function setUp() public virtual override {
        super.setUp();
        mint(ann, FUNDS, refOf(1));
        mint(bob, FUNDS, refOf(2));
    }

    function grantOn(address target, bytes32 role, address account) internal {
        vm.prank(ADMIN);
        IAccessControl(target).grantRole(role, account);
    }

    function allow(address user, address spender, uint256 amount) internal {
        vm.prank(user);
        ltz.approve(spender, amount);
    }

    /// @dev A call whose revert is ours too, so that `expectRevert` sees it.
    function send(address caller, address target, bytes memory data) internal returns (bytes memory result) {
        bool succeeded;
        vm.prank(caller);
        (succeeded, result) = target.call(data);
        if (succeeded) return result;
        assembly ("memory-safe") {
            revert(add(result, 32), mload(result))
        }
    }
}
