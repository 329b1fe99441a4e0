// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ILTZ, Reward} from "../src/ILTZ.sol";
import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice Minting rewards, and the references that make each happen once.
contract LTZMint is LTZSpec {
    function test_it_is_the_loyalty_token_with_18_decimals_and_no_supply() public view {
        vm.assertEq(ltz.name(), "Loyalty Token");
        vm.assertEq(ltz.symbol(), "LTZ");
        vm.assertEq(ltz.decimals(), 18);
        vm.assertEq(ltz.totalSupply(), 0);
    }

    function test_a_reward_raises_balance_and_supply_and_says_so() public {
        vm.expectEmit(address(ltz));
        emit Transfer(address(0), ann, 5 ether);
        vm.expectEmit(address(ltz));
        emit RewardMinted(ann, refOf(7), 5 ether);
        mint(ann, 5 ether, refOf(7));
        vm.assertEq(ltz.balanceOf(ann), 5 ether);
        vm.assertEq(ltz.totalSupply(), 5 ether);
        vm.assertTrue(ltz.isRefUsed(refOf(7)));
    }

    function test_only_a_minter_mints() public {
        expectMissingRole(STRANGER, minterRole);
        vm.prank(STRANGER);
        ltz.mintReward(ann, 1, refOf(1));
        expectMissingRole(STRANGER, minterRole);
        vm.prank(STRANGER);
        ltz.mintRewardBatch(one(ann, 1, refOf(1)));
    }

    function test_the_admin_alone_is_no_minter() public {
        expectMissingRole(ADMIN, minterRole);
        vm.prank(ADMIN);
        ltz.mintReward(ann, 1, refOf(1));
    }

    function test_a_used_reference_is_refused() public {
        mint(ann, 1 ether, refOf(7));
        vm.expectRevert(abi.encodeWithSelector(ILTZ.RefAlreadyUsed.selector, refOf(7)));
        mint(ann, 1 ether, refOf(7));
    }

    function test_a_used_seq_is_refused_under_another_uuid() public {
        mint(ann, 1 ether, refOf(1, 7));
        vm.assertTrue(ltz.isRefUsed(refOf(2, 7)));
        vm.expectRevert(abi.encodeWithSelector(ILTZ.RefAlreadyUsed.selector, refOf(2, 7)));
        mint(bob, 1 ether, refOf(2, 7));
    }

    function test_a_reward_of_nothing_is_refused_and_its_reference_stays_free() public {
        vm.expectRevert(ILTZ.ZeroAmount.selector);
        mint(ann, 0, refOf(7));
        vm.assertFalse(ltz.isRefUsed(refOf(7)));
        vm.expectRevert(ILTZ.ZeroAmount.selector);
        mintBatch(two(Reward(ann, 1, refOf(7)), Reward(bob, 0, refOf(8))));
        vm.assertFalse(ltz.isRefUsed(refOf(7)));
    }

    function test_the_zero_address_is_refused() public {
        bytes memory reason = abi.encodeWithSignature("ERC20InvalidReceiver(address)", address(0));
        vm.expectRevert(reason);
        mint(address(0), 1, refOf(7));
        vm.expectRevert(reason);
        mintBatch(one(address(0), 1, refOf(7)));
    }

    function test_a_batch_mints_each_reward_and_says_how_many() public {
        Reward[] memory rewards = two(Reward(ann, 1 ether, refOf(7)), Reward(bob, 2 ether, refOf(8)));
        vm.expectEmit(address(ltz));
        emit RewardMinted(ann, refOf(7), 1 ether);
        vm.expectEmit(address(ltz));
        emit Transfer(address(0), ann, 1 ether);
        vm.expectEmit(address(ltz));
        emit RewardMinted(bob, refOf(8), 2 ether);
        vm.expectEmit(address(ltz));
        emit Transfer(address(0), bob, 2 ether);
        vm.assertEq(mintBatch(rewards), 2);
        vm.assertEq(ltz.balanceOf(ann), 1 ether);
        vm.assertEq(ltz.balanceOf(bob), 2 ether);
        vm.assertEq(ltz.totalSupply(), 3 ether);
    }

    function test_a_batch_skips_what_was_minted_before() public {
        mint(ann, 1 ether, refOf(7));
        vm.expectEmit(address(ltz));
        emit RewardSkipped(ann, refOf(7), 1 ether);
        vm.expectEmit(address(ltz));
        emit Transfer(address(0), bob, 2 ether);
        vm.assertEq(mintBatch(two(Reward(ann, 1 ether, refOf(7)), Reward(bob, 2 ether, refOf(8)))), 1);
        vm.assertEq(ltz.balanceOf(ann), 1 ether);
        vm.assertEq(ltz.totalSupply(), 3 ether);
    }

    function test_a_batch_mints_a_reference_it_holds_twice_only_once() public {
        vm.assertEq(mintBatch(two(Reward(ann, 1 ether, refOf(1, 7)), Reward(bob, 2 ether, refOf(2, 7)))), 1);
        vm.assertEq(ltz.balanceOf(ann), 1 ether);
        vm.assertEq(ltz.balanceOf(bob), 0);
        vm.assertEq(available(MINTER), CAPACITY - 1 ether);
    }

    function test_a_batch_sent_again_changes_nothing() public {
        Reward[] memory rewards = two(Reward(ann, 1 ether, refOf(7)), Reward(bob, 2 ether, refOf(8)));
        mintBatch(rewards);
        vm.assertEq(mintBatch(rewards), 0);
        vm.assertEq(ltz.totalSupply(), 3 ether);
        vm.assertEq(available(MINTER), CAPACITY - 3 ether);
    }

    function test_an_empty_batch_is_allowed() public {
        vm.assertEq(mintBatch(new Reward[](0)), 0);
    }

    function test_a_word_shows_256_seqs() public {
        mint(ann, 1, refOf(0));
        mint(ann, 1, refOf(255));
        mint(ann, 1, refOf(256));
        vm.assertEq(ltz.refWord(0), 1 | (1 << 255));
        vm.assertEq(ltz.refWord(1), 1);
        vm.assertEq(ltz.refWord(2), 0);
        vm.assertEq(ltz.refWord(type(uint256).max), 0);
    }

    function test_the_last_seq_works_as_the_first() public {
        mint(ann, 1, refOf(type(uint64).max));
        vm.assertTrue(ltz.isRefUsed(refOf(type(uint64).max)));
        vm.assertFalse(ltz.isRefUsed(refOf(type(uint64).max - 1)));
        vm.assertEq(ltz.refWord(type(uint56).max), 1 << 255);
    }

    function test_holders_may_burn() public {
        mint(ann, 3 ether, refOf(7));
        vm.prank(ann);
        ltz.burn(1 ether);
        vm.assertEq(ltz.totalSupply(), 2 ether);
        vm.assertTrue(ltz.isRefUsed(refOf(7)));
    }

    function test_nobody_burns_what_he_was_not_allowed_to() public {
        mint(ann, 3 ether, refOf(7));
        vm.expectRevert(abi.encodeWithSignature("ERC20InsufficientAllowance(address,uint256,uint256)", MINTER, 0, 1));
        vm.prank(MINTER);
        ltz.burnFrom(ann, 1);
    }

    function testFuzz_any_amount_within_the_limit_is_minted_exactly(uint256 seed, uint128 uuid, uint64 seq) public {
        uint256 amount = between(seed, 1, CAPACITY);
        mint(ann, amount, refOf(uuid, seq));
        vm.assertEq(ltz.balanceOf(ann), amount);
        vm.assertEq(ltz.totalSupply(), amount);
    }

    function testFuzz_a_reference_uses_its_seq_and_no_other(bytes32 used, bytes32 other) public {
        mint(ann, 1, used);
        vm.assertTrue(ltz.isRefUsed(used));
        bool sameSeq = uint64(uint256(used)) == uint64(uint256(other));
        vm.assertTrue(ltz.isRefUsed(other) == sameSeq);
    }

    function testFuzz_neighbours_in_a_word_do_not_disturb_each_other(uint64 word, uint8[4] memory bits) public {
        uint256 expected = 0;
        for (uint256 i = 0; i < bits.length; ++i) {
            uint64 seq = (word >> 8 << 8) | bits[i];
            mintBatch(one(ann, 1, refOf(seq)));
            expected |= 1 << bits[i];
        }
        vm.assertEq(ltz.refWord(word >> 8), expected);
    }
}
