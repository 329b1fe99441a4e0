// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ILTZ, Reward} from "../src/ILTZ.sol";
import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice The mint limit: a bucket per minter, refilled evenly.
contract LTZLimit is LTZSpec {
    address private constant SECOND_MINTER = address(0x3148);
    uint256 private constant UNIT = 1e12;
    uint256 private nextSeq = 1000;

    function expectExceeded(address minter, uint256 wanted, uint256 left) private {
        vm.expectRevert(abi.encodeWithSelector(ILTZ.MintLimitExceeded.selector, minter, wanted, left));
    }

    function spend(uint256 amount) private {
        mint(ann, amount, refOf(uint64(nextSeq++)));
    }

    function test_a_new_limit_is_told_and_starts_full() public {
        vm.expectEmit(address(ltz));
        emit MintLimitSet(SECOND_MINTER, 5 ether, 60);
        limit(SECOND_MINTER, 5 ether, 60);
        (uint256 capacity, uint256 window, uint256 left) = ltz.mintLimit(SECOND_MINTER);
        vm.assertEq(capacity, 5 ether);
        vm.assertEq(window, 60);
        vm.assertEq(left, 5 ether);
    }

    function test_only_the_admin_sets_a_limit() public {
        address[3] memory others = [MINTER, GUARDIAN, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], ADMIN_ROLE);
            vm.prank(others[i]);
            ltz.setMintLimit(others[i], CAPACITY, WINDOW);
        }
    }

    function test_a_minter_without_a_limit_mints_nothing() public {
        grant(minterRole, SECOND_MINTER);
        expectExceeded(SECOND_MINTER, 1, 0);
        vm.prank(SECOND_MINTER);
        ltz.mintReward(ann, 1, refOf(1));
        expectExceeded(SECOND_MINTER, 1, 0);
        vm.prank(SECOND_MINTER);
        ltz.mintRewardBatch(one(ann, 1, refOf(1)));
    }

    function test_a_limit_without_the_role_lets_nobody_mint() public {
        limit(STRANGER, CAPACITY, WINDOW);
        expectMissingRole(STRANGER, minterRole);
        vm.prank(STRANGER);
        ltz.mintReward(ann, 1, refOf(1));
    }

    function test_the_capacity_can_be_minted_and_not_a_wei_more() public {
        spend(CAPACITY);
        expectExceeded(MINTER, 1, 0);
        mint(ann, 1, refOf(1));
        vm.assertFalse(ltz.isRefUsed(refOf(1)));
    }

    function test_a_batch_over_the_limit_mints_nothing() public {
        expectExceeded(MINTER, CAPACITY + 1, CAPACITY);
        mintBatch(two(Reward(ann, uint96(CAPACITY), refOf(1)), Reward(bob, 1, refOf(2))));
        vm.assertEq(ltz.totalSupply(), 0);
        vm.assertFalse(ltz.isRefUsed(refOf(1)));
    }

    function test_a_batch_within_the_limit_spends_its_sum() public {
        mintBatch(two(Reward(ann, 3 ether, refOf(1)), Reward(bob, 4 ether, refOf(2))));
        vm.assertEq(available(MINTER), CAPACITY - 7 ether);
    }

    function test_what_is_skipped_is_not_spent() public {
        spend(CAPACITY);
        vm.assertEq(mintBatch(one(ann, 5 ether, refOf(1000))), 0);
    }

    function test_spending_rounds_up_to_the_unit() public {
        spend(1);
        vm.assertEq(available(MINTER), CAPACITY - UNIT);
        spend(UNIT + 1);
        vm.assertEq(available(MINTER), CAPACITY - 3 * UNIT);
        spend(UNIT);
        vm.assertEq(available(MINTER), CAPACITY - 4 * UNIT);
    }

    function test_a_batch_rounds_its_sum_up_once() public {
        mintBatch(two(Reward(ann, 1, refOf(1)), Reward(bob, 1, refOf(2))));
        vm.assertEq(available(MINTER), CAPACITY - UNIT);
    }

    function test_an_empty_bucket_refills_evenly_and_stops_when_full() public {
        spend(CAPACITY);
        vm.warp(block.timestamp + WINDOW / 4);
        vm.assertEq(available(MINTER), CAPACITY / 4);
        vm.warp(block.timestamp + WINDOW / 4);
        vm.assertEq(available(MINTER), CAPACITY / 2);
        vm.warp(block.timestamp + 10 * WINDOW);
        vm.assertEq(available(MINTER), CAPACITY);
    }

    function test_a_half_full_bucket_does_not_refill_past_its_capacity() public {
        spend(CAPACITY / 4);
        vm.warp(block.timestamp + WINDOW / 2);
        vm.assertEq(available(MINTER), CAPACITY);
    }

    function test_the_refill_is_counted_once() public {
        spend(CAPACITY);
        vm.warp(block.timestamp + WINDOW / 2);
        spend(CAPACITY / 4);
        vm.assertEq(available(MINTER), CAPACITY / 4);
        spend(CAPACITY / 4);
        expectExceeded(MINTER, 1, 0);
        mint(ann, 1, refOf(1));
    }

    function test_minters_do_not_share_a_bucket() public {
        grant(minterRole, SECOND_MINTER);
        limit(SECOND_MINTER, 5 ether, WINDOW);
        spend(CAPACITY);
        vm.prank(SECOND_MINTER);
        ltz.mintReward(ann, 5 ether, refOf(1));
        vm.assertEq(available(SECOND_MINTER), 0);
    }

    function test_a_raised_limit_adds_only_the_difference() public {
        spend(CAPACITY);
        limit(MINTER, CAPACITY + 5 ether, WINDOW);
        vm.assertEq(available(MINTER), 5 ether);
    }

    function test_a_lowered_limit_forgets_nothing_spent() public {
        spend(10 ether);
        limit(MINTER, 15 ether, WINDOW);
        vm.assertEq(available(MINTER), 5 ether);
        limit(MINTER, 4 ether, WINDOW);
        vm.assertEq(available(MINTER), 0);
    }

    function test_the_same_limit_set_again_fills_nothing() public {
        spend(CAPACITY);
        limit(MINTER, CAPACITY, WINDOW);
        vm.assertEq(available(MINTER), 0);
    }

    function test_zero_capacity_stops_a_minter() public {
        limit(MINTER, 0, 0);
        expectExceeded(MINTER, 1, 0);
        mint(ann, 1, refOf(1));
        vm.warp(block.timestamp + 1);
        vm.assertEq(available(MINTER), 0);
    }

    function test_a_capacity_is_rounded_down_to_the_unit() public {
        vm.expectEmit(address(ltz));
        emit MintLimitSet(MINTER, 3 * UNIT, WINDOW);
        limit(MINTER, 4 * UNIT - 1, WINDOW);
        vm.assertEq(available(MINTER), 3 * UNIT);
    }

    function test_a_limit_without_a_window_is_refused() public {
        vm.expectRevert(abi.encodeWithSelector(ILTZ.BadMintLimit.selector, UNIT, 0));
        limit(MINTER, UNIT, 0);
    }

    function test_the_highest_capacity_is_far_above_309_million_tokens() public {
        uint256 highest = uint256(type(uint88).max) * UNIT;
        limit(SECOND_MINTER, highest, WINDOW);
        vm.assertEq(available(SECOND_MINTER), highest);
        vm.expectRevert(abi.encodeWithSelector(ILTZ.BadMintLimit.selector, highest + UNIT, WINDOW));
        limit(SECOND_MINTER, highest + UNIT, WINDOW);
    }

    function test_the_highest_single_amount_meets_the_limit_and_no_overflow() public {
        expectExceeded(MINTER, type(uint256).max, CAPACITY);
        mint(ann, type(uint256).max, refOf(1));
    }

    function testFuzz_the_bucket_follows_its_formula(uint256 spentSeed, uint32 secondsPassed) public {
        uint256 spent = between(spentSeed, 1, CAPACITY);
        spend(spent);
        vm.warp(block.timestamp + secondsPassed);
        uint256 expected = CAPACITY - (spent + UNIT - 1) / UNIT * UNIT + CAPACITY * secondsPassed / WINDOW;
        if (expected > CAPACITY) expected = CAPACITY;
        vm.assertApproxEqAbs(available(MINTER), expected, UNIT, "available");
        vm.assertLe(available(MINTER), expected, "rounds towards less");
    }
}
