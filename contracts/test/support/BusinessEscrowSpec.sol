// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BusinessEscrow} from "../../src/BusinessEscrow.sol";
import {IBusinessEscrow} from "../../src/IBusinessEscrow.sol";
import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice A deployed BusinessEscrow in which Bob is the approved business, and words to speak about it.
abstract contract BusinessEscrowSpec is RelayedSpec {
    event BusinessSet(address indexed business, bool approved);
    event Locked(
        bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, uint40 refundAfter
    );
    event Released(bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, address by);
    event Refunded(bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, address by);
    event Split(
        bytes32 indexed dealId, address indexed user, address indexed business, uint256 toUser, uint256 toBusiness
    );

    bytes32 internal constant SETTLER_ROLE = keccak256("SETTLER_ROLE");
    bytes32 internal constant ARBITER_ROLE = keccak256("ARBITER_ROLE");
    address internal constant SETTLER = address(0x5E7);
    address internal constant ARBITER = address(0xA4B);

    uint256 internal constant AMOUNT = 40 ether;
    bytes32 internal constant DEAL = keccak256("a deal");

    BusinessEscrow internal escrow;
    uint40 internal refundAfter;

    function setUp() public virtual override {
        super.setUp();
        escrow = new BusinessEscrow(ltz, ADMIN, ADMIN_DELAY);
        grantOn(address(escrow), RELAYER_ROLE, RELAYER);
        grantOn(address(escrow), GUARDIAN_ROLE, GUARDIAN);
        grantOn(address(escrow), REGISTRAR_ROLE, REGISTRAR);
        grantOn(address(escrow), SETTLER_ROLE, SETTLER);
        grantOn(address(escrow), ARBITER_ROLE, ARBITER);
        approveBusiness(bob, true);
        refundAfter = uint40(block.timestamp + 7 days);
    }

    function approveBusiness(address business, bool approved) internal {
        vm.prank(REGISTRAR);
        escrow.setBusiness(business, approved);
    }

    function lockFor(address user, uint256 amount, bytes32 dealId) internal {
        vm.prank(RELAYER);
        escrow.lockFor(user, bob, amount, refundAfter, dealId);
    }

    /// @dev Ann's, with Bob.
    function givenADeal() internal {
        allow(ann, address(escrow), AMOUNT);
        lockFor(ann, AMOUNT, DEAL);
    }

    function statusOf(bytes32 dealId) internal view returns (uint256) {
        return uint256(escrow.deal(dealId).status);
    }

    function requireStatus(IBusinessEscrow.Status expected) internal view {
        vm.assertEq(statusOf(DEAL), uint256(expected));
    }

    function requireBalances(uint256 annHas, uint256 bobHas, uint256 escrowHas) internal view {
        vm.assertEq(ltz.balanceOf(ann), annHas);
        vm.assertEq(ltz.balanceOf(bob), bobHas);
        vm.assertEq(ltz.balanceOf(address(escrow)), escrowHas);
    }
}
