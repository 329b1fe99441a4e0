// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";

/// @notice How a deal ends: once, and with its two parties.
contract BusinessEscrowEnds is BusinessEscrowSpec {
    function setUp() public override {
        super.setUp();
        givenADeal();
    }

    function expectNotAllowed(address caller) private {
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.NotAllowed.selector, DEAL, caller));
    }

    function release(address caller) private {
        vm.prank(caller);
        escrow.release(DEAL);
    }

    function refund(address caller) private {
        vm.prank(caller);
        escrow.refund(DEAL);
    }

    function reclaim(address caller) private {
        vm.prank(caller);
        escrow.reclaim(DEAL);
    }

    function split(uint256 toBusiness) private {
        vm.prank(ARBITER);
        escrow.split(DEAL, toBusiness);
    }

    function requireReleased() private view {
        requireStatus(IBusinessEscrow.Status.Released);
        requireBalances(FUNDS - AMOUNT, FUNDS + AMOUNT, 0);
    }

    function requireRefunded() private view {
        requireStatus(IBusinessEscrow.Status.Refunded);
        requireBalances(FUNDS, FUNDS, 0);
    }

    function test_the_user_pays_the_business() public {
        vm.expectEmit(address(escrow));
        emit Released(DEAL, ann, bob, AMOUNT, ann);
        release(ann);
        requireReleased();
    }

    function test_a_settler_pays_the_business() public {
        vm.expectEmit(address(escrow));
        emit Released(DEAL, ann, bob, AMOUNT, SETTLER);
        release(SETTLER);
        requireReleased();
    }

    function test_nobody_else_pays_the_business() public {
        address[6] memory others = [bob, ADMIN, ARBITER, REGISTRAR, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectNotAllowed(others[i]);
            release(others[i]);
        }
        requireStatus(IBusinessEscrow.Status.Locked);
    }

    function test_the_business_pays_back() public {
        vm.expectEmit(address(escrow));
        emit Refunded(DEAL, ann, bob, AMOUNT, bob);
        refund(bob);
        requireRefunded();
    }

    function test_a_settler_pays_back() public {
        vm.expectEmit(address(escrow));
        emit Refunded(DEAL, ann, bob, AMOUNT, SETTLER);
        refund(SETTLER);
        requireRefunded();
    }

    function test_nobody_else_pays_back() public {
        vm.warp(refundAfter);
        address[6] memory others = [ann, ADMIN, ARBITER, REGISTRAR, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectNotAllowed(others[i]);
            refund(others[i]);
        }
        requireStatus(IBusinessEscrow.Status.Locked);
    }

    function test_anyone_sends_it_back_from_the_appointed_second_on() public {
        vm.warp(refundAfter - 1);
        vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.TooEarly.selector, DEAL, refundAfter));
        reclaim(ann);
        vm.warp(refundAfter);
        vm.expectEmit(address(escrow));
        emit Refunded(DEAL, ann, bob, AMOUNT, STRANGER);
        reclaim(STRANGER);
        requireRefunded();
        vm.assertEq(ltz.balanceOf(STRANGER), 0);
    }

    function test_nobody_can_stop_a_reclaim() public {
        approveBusiness(bob, false);
        vm.prank(GUARDIAN);
        escrow.revokeRole(RELAYER_ROLE, RELAYER);
        vm.prank(ADMIN);
        escrow.revokeRole(SETTLER_ROLE, SETTLER);
        vm.warp(refundAfter + 1000 days);
        reclaim(ann);
        requireRefunded();
    }

    function test_a_business_no_longer_approved_is_still_paid() public {
        approveBusiness(bob, false);
        release(ann);
        requireReleased();
    }

    function test_a_deal_with_a_business_no_longer_approved_is_still_divided() public {
        approveBusiness(bob, false);
        split(10 ether);
        requireBalances(FUNDS - 10 ether, FUNDS + 10 ether, 0);
    }

    function test_a_user_may_pay_late() public {
        vm.warp(refundAfter + 1);
        release(ann);
        requireReleased();
    }

    function test_an_arbiter_divides() public {
        vm.expectEmit(address(escrow));
        emit Split(DEAL, ann, bob, 30 ether, 10 ether);
        split(10 ether);
        requireStatus(IBusinessEscrow.Status.Split);
        requireBalances(FUNDS - 10 ether, FUNDS + 10 ether, 0);
    }

    function test_an_arbiter_may_give_all_to_one() public {
        split(AMOUNT);
        requireBalances(FUNDS - AMOUNT, FUNDS + AMOUNT, 0);
        allow(ann, address(escrow), AMOUNT);
        lockFor(ann, AMOUNT, keccak256("another"));
        vm.prank(ARBITER);
        escrow.split(keccak256("another"), 0);
        requireBalances(FUNDS - AMOUNT, FUNDS + AMOUNT, 0);
    }

    function test_an_arbiter_gives_no_more_than_there_is() public {
        vm.prank(bob);
        vm.assertTrue(ltz.transfer(address(escrow), AMOUNT));
        vm.expectRevert(IBusinessEscrow.BadAmount.selector);
        split(AMOUNT + 1);
        vm.expectRevert(IBusinessEscrow.BadAmount.selector);
        split(type(uint256).max);
        requireStatus(IBusinessEscrow.Status.Locked);
    }

    function test_only_an_arbiter_divides() public {
        address[6] memory others = [ann, bob, ADMIN, SETTLER, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], ARBITER_ROLE);
            vm.prank(others[i]);
            escrow.split(DEAL, 1);
        }
    }

    function endIt(uint256 how) private {
        if (how == 0) release(ann);
        if (how == 1) refund(bob);
        if (how == 2) reclaim(STRANGER);
        if (how == 3) split(10 ether);
    }

    function test_a_deal_ends_once() public {
        // Another's LTZ lies beside it, which a second payment would take.
        bytes32 other = keccak256("another");
        allow(ann, address(escrow), AMOUNT);
        lockFor(ann, AMOUNT, other);
        vm.warp(refundAfter);
        IBusinessEscrow.Status[4] memory ends = [
            IBusinessEscrow.Status.Released,
            IBusinessEscrow.Status.Refunded,
            IBusinessEscrow.Status.Refunded,
            IBusinessEscrow.Status.Split
        ];
        uint256 clean = vm.snapshotState();
        for (uint256 first = 0; first < 4; ++first) {
            endIt(first);
            for (uint256 second = 0; second < 4; ++second) {
                vm.expectRevert(abi.encodeWithSelector(IBusinessEscrow.NotLocked.selector, DEAL, ends[first]));
                endIt(second);
            }
            vm.assertEq(ltz.balanceOf(address(escrow)), AMOUNT);
            vm.assertTrue(vm.revertToState(clean));
        }
        vm.assertEq(statusOf(other), uint256(IBusinessEscrow.Status.Locked));
    }

    function test_a_deal_that_is_none_does_not_end() public {
        bytes32 none = keccak256("none");
        bytes memory reason =
            abi.encodeWithSelector(IBusinessEscrow.NotLocked.selector, none, IBusinessEscrow.Status.None);
        vm.expectRevert(reason);
        vm.prank(SETTLER);
        escrow.release(none);
        vm.expectRevert(reason);
        vm.prank(SETTLER);
        escrow.refund(none);
        vm.expectRevert(reason);
        escrow.reclaim(none);
        vm.expectRevert(reason);
        vm.prank(ARBITER);
        escrow.split(none, 0);
        vm.expectRevert(reason);
        escrow.releaseWithSig(none, block.timestamp, "");
        vm.expectRevert(reason);
        escrow.refundWithSig(none, block.timestamp, "");
    }

    function testFuzz_a_split_pays_out_everything(uint256 amount, uint256 share) public {
        amount = between(amount, 1, FUNDS - AMOUNT);
        share = between(share, 0, amount);
        bytes32 other = keccak256("another");
        allow(ann, address(escrow), amount);
        lockFor(ann, amount, other);
        vm.prank(ARBITER);
        escrow.split(other, share);
        requireBalances(FUNDS - AMOUNT - share, FUNDS + share, AMOUNT);
    }
}
