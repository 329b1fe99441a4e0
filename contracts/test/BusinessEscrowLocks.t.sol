// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";

/// @notice Who can be dealt with, and how a deal begins.
contract BusinessEscrowLocks is BusinessEscrowSpec {
    function setUp() public override {
        super.setUp();
        allow(ann, address(escrow), FUNDS);
    }

    function expectBadDeadline(uint256 at_) private {
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.BadDeadline.selector, at_));
    }

    function expectNotApproved(address business) private {
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.BusinessNotApproved.selector, business));
    }

    function expectExists() private {
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.DealExists.selector, DEAL));
    }

    function lockUntil(uint256 time, bytes32 dealId) private {
        refundAfter = uint40(time);
        lockFor(ann, AMOUNT, dealId);
    }

    function requireDeal() private view {
        IBusinessEscrow.Deal memory expected =
            IBusinessEscrow.Deal(ann, uint96(AMOUNT), bob, refundAfter, IBusinessEscrow.Status.Locked);
        vm.assertEq(abi.encode(escrow.deal(DEAL)), abi.encode(expected), "deal");
        requireBalances(FUNDS - AMOUNT, FUNDS, AMOUNT);
    }

    function test_a_lock_takes_the_amount_and_says_so() public {
        vm.expectEmit(address(escrow));
        emit Locked(DEAL, ann, bob, AMOUNT, refundAfter);
        lockFor(ann, AMOUNT, DEAL);
        requireDeal();
        vm.assertEq(ltz.allowance(ann, address(escrow)), FUNDS - AMOUNT);
    }

    function test_a_user_locks_for_himself() public {
        vm.expectEmit(address(escrow));
        emit Locked(DEAL, ann, bob, AMOUNT, refundAfter);
        vm.prank(ann);
        escrow.lock(bob, AMOUNT, refundAfter, DEAL);
        requireDeal();
    }

    function test_a_user_who_locks_pays_himself() public {
        vm.expectRevert(
            abi.encodeWithSignature("ERC20InsufficientAllowance(address,uint256,uint256)", address(escrow), 0, AMOUNT)
        );
        vm.prank(STRANGER);
        escrow.lock(bob, AMOUNT, refundAfter, DEAL);
    }

    function test_a_deal_that_is_none_is_all_zero() public view {
        IBusinessEscrow.Deal memory none;
        vm.assertEq(abi.encode(escrow.deal(DEAL)), abi.encode(none), "deal");
    }

    function test_an_id_is_used_once_for_ever() public {
        lockFor(ann, AMOUNT, DEAL);
        expectExists();
        lockFor(ann, AMOUNT, DEAL);
        expectExists();
        vm.prank(bob);
        escrow.lock(bob, AMOUNT, refundAfter, DEAL);
        requireDeal();
        vm.prank(bob);
        escrow.refund(DEAL);
        expectExists();
        lockFor(ann, AMOUNT, DEAL);
        requireBalances(FUNDS, FUNDS, 0);
    }

    function test_only_approved_businesses_are_dealt_with() public {
        expectNotApproved(STRANGER);
        vm.prank(RELAYER);
        escrow.lockFor(ann, STRANGER, AMOUNT, refundAfter, DEAL);
        expectNotApproved(STRANGER);
        vm.prank(ann);
        escrow.lock(STRANGER, AMOUNT, refundAfter, DEAL);
        approveBusiness(bob, false);
        expectNotApproved(bob);
        lockFor(ann, AMOUNT, DEAL);
    }

    function test_an_approval_is_told_and_kept() public {
        vm.assertFalse(escrow.isBusiness(STRANGER));
        vm.expectEmit(address(escrow));
        emit BusinessSet(STRANGER, true);
        approveBusiness(STRANGER, true);
        vm.assertTrue(escrow.isBusiness(STRANGER));
        vm.expectEmit(address(escrow));
        emit BusinessSet(STRANGER, false);
        approveBusiness(STRANGER, false);
        vm.assertFalse(escrow.isBusiness(STRANGER));
        vm.assertTrue(escrow.isBusiness(bob));
    }

    function test_only_a_registrar_approves() public {
        address[5] memory others = [ADMIN, SETTLER, ARBITER, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REGISTRAR_ROLE);
            vm.prank(others[i]);
            escrow.setBusiness(others[i], true);
        }
    }

    function test_a_business_where_ltz_would_be_lost_is_refused() public {
        address[3] memory lost = [address(0), address(escrow), address(ltz)];
        for (uint256 i = 0; i < lost.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.BadBusiness.selector, lost[i]));
            approveBusiness(lost[i], true);
        }
    }

    function test_a_deal_over_nothing_or_more_than_it_can_say_is_refused() public {
        uint256[3] memory wrong = [uint256(0), uint256(type(uint96).max) + 1, type(uint256).max];
        for (uint256 i = 0; i < wrong.length; ++i) {
            vm.expectRevert(IBusinessEscrow.BadAmount.selector);
            lockFor(ann, wrong[i], DEAL);
        }
        lockFor(ann, 1, DEAL);
        vm.expectRevert(
            abi.encodeWithSignature(
                "ERC20InsufficientAllowance(address,uint256,uint256)",
                address(escrow),
                FUNDS - 1,
                uint256(type(uint96).max)
            )
        );
        lockFor(ann, type(uint96).max, keccak256("another"));
    }

    function test_a_deal_lasts_an_hour_to_a_year() public {
        uint256 now_ = block.timestamp;
        expectBadDeadline(now_ + 1 hours - 1);
        lockUntil(now_ + 1 hours - 1, DEAL);
        expectBadDeadline(now_ + 365 days + 1);
        lockUntil(now_ + 365 days + 1, DEAL);
        expectBadDeadline(0);
        lockUntil(0, DEAL);
        expectBadDeadline(type(uint40).max);
        lockUntil(type(uint40).max, DEAL);
        lockUntil(now_ + 1 hours, DEAL);
        lockUntil(now_ + 365 days, keccak256("another"));
    }

    function testFuzz_any_amount_is_held_exactly(uint256 amount, uint256 time, bytes32 dealId) public {
        amount = between(amount, 1, FUNDS);
        refundAfter = uint40(between(time, block.timestamp + 1 hours, block.timestamp + 365 days));
        lockFor(ann, amount, dealId);
        requireBalances(FUNDS - amount, FUNDS, amount);
        IBusinessEscrow.Deal memory held = escrow.deal(dealId);
        vm.assertEq(held.amount, amount);
        vm.assertEq(held.refundAfter, refundAfter);
    }
}
