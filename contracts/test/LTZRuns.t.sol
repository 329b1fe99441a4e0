// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ILTZ, Reward} from "../src/ILTZ.sol";
import {LTZSpec} from "./support/LTZSpec.sol";
import {Vm} from "./support/Vm.sol";

/// @notice Runs: neighbours in a batch with the same holder, who are paid their sum in one transfer.
contract LTZRuns is LTZSpec {
    uint256 private constant UNIT = 1e12;

    /// @dev What a batch must do, by the slowest reading of its promise.
    struct Expected {
        uint256[3] balances;
        uint256 total;
        uint256 minted;
        uint256 transfers;
    }

    function test_a_run_is_paid_its_sum_at_once_and_each_reward_says_its_own_amount() public {
        Reward[] memory rewards = new Reward[](4);
        rewards[0] = Reward(ann, 1 ether, refOf(7));
        rewards[1] = Reward(ann, 2 ether, refOf(8));
        rewards[2] = Reward(bob, 4 ether, refOf(9));
        rewards[3] = Reward(ann, 8 ether, refOf(10));
        vm.recordLogs();
        vm.assertEq(mintBatch(rewards), 4);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 7);
        expectMinted(logs[0], ann, refOf(7), 1 ether);
        expectMinted(logs[1], ann, refOf(8), 2 ether);
        expectTransfer(logs[2], ann, 3 ether);
        expectMinted(logs[3], bob, refOf(9), 4 ether);
        expectTransfer(logs[4], bob, 4 ether);
        expectMinted(logs[5], ann, refOf(10), 8 ether);
        expectTransfer(logs[6], ann, 8 ether);
        vm.assertEq(ltz.balanceOf(ann), 11 ether);
        vm.assertEq(ltz.balanceOf(bob), 4 ether);
        vm.assertEq(available(MINTER), CAPACITY - 15 ether);
    }

    function test_a_skipped_reward_leaves_its_run_whole() public {
        mint(bob, 1 ether, refOf(8));
        Reward[] memory rewards = new Reward[](3);
        rewards[0] = Reward(ann, 1 ether, refOf(7));
        rewards[1] = Reward(ann, 2 ether, refOf(8));
        rewards[2] = Reward(ann, 4 ether, refOf(9));
        vm.recordLogs();
        vm.assertEq(mintBatch(rewards), 2);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 4);
        expectMinted(logs[0], ann, refOf(7), 1 ether);
        vm.assertEq(logs[1].topics[0], RewardSkipped.selector);
        expectMinted(logs[2], ann, refOf(9), 4 ether);
        expectTransfer(logs[3], ann, 5 ether);
    }

    function test_a_run_of_skipped_rewards_transfers_nothing() public {
        mint(ann, 1 ether, refOf(7));
        Reward[] memory rewards = two(Reward(ann, 1 ether, refOf(7)), Reward(bob, 2 ether, refOf(8)));
        mintBatch(rewards);
        vm.recordLogs();
        vm.assertEq(mintBatch(rewards), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 2);
        vm.assertEq(logs[0].topics[0], RewardSkipped.selector);
        vm.assertEq(logs[1].topics[0], RewardSkipped.selector);
    }

    function test_a_run_of_the_zero_address_is_refused_wherever_it_stands() public {
        bytes memory reason = abi.encodeWithSignature("ERC20InvalidReceiver(address)", address(0));
        vm.expectRevert(reason);
        mintBatch(two(Reward(address(0), 1, refOf(7)), Reward(ann, 1, refOf(8))));
        vm.expectRevert(reason);
        mintBatch(two(Reward(ann, 1, refOf(7)), Reward(address(0), 1, refOf(8))));
    }

    function test_a_reward_of_nothing_within_a_run_is_refused() public {
        vm.expectRevert(ILTZ.ZeroAmount.selector);
        mintBatch(two(Reward(ann, 1, refOf(7)), Reward(ann, 0, refOf(8))));
    }

    function test_the_sum_of_a_run_is_held_to_the_limit_to_the_wei() public {
        Reward[] memory rewards = two(Reward(ann, uint96(CAPACITY), refOf(7)), Reward(ann, 1, refOf(8)));
        vm.expectRevert(abi.encodeWithSelector(ILTZ.MintLimitExceeded.selector, MINTER, CAPACITY + 1, CAPACITY));
        mintBatch(rewards);
        rewards[0].amount -= 1;
        vm.assertEq(mintBatch(rewards), 2);
        vm.assertEq(ltz.balanceOf(ann), CAPACITY);
        vm.assertEq(available(MINTER), 0);
    }

    function test_the_largest_amounts_do_not_overflow_a_run() public {
        limit(MINTER, uint256(type(uint88).max) * UNIT, WINDOW);
        uint96 most = type(uint96).max;
        mintBatch(two(Reward(ann, most, refOf(7)), Reward(ann, most, refOf(8))));
        vm.assertEq(ltz.balanceOf(ann), 2 * uint256(most));
    }

    /// @dev Few holders and few seqs, so that runs are long and references come again, also from an earlier batch.
    function testFuzz_a_batch_pays_each_reference_once_and_each_run_its_sum(uint256 seed, uint8 size) public {
        address[3] memory holders = [ann, bob, STRANGER];
        for (uint64 seq = 0; seq < 40; seq += 5) {
            mint(MINTER, 1, refOf(seq));
        }
        limit(MINTER, 0, 0);
        limit(MINTER, CAPACITY, WINDOW);
        Reward[] memory rewards = new Reward[](size % 40);
        for (uint256 i = 0; i < rewards.length; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            rewards[i] = Reward(holders[seed % 3], uint96(1 + (seed >> 8) % 9 ether), refOf(uint64((seed >> 80) % 40)));
        }
        Expected memory expected = expect(rewards, holders);
        vm.recordLogs();
        vm.assertEq(mintBatch(rewards), expected.minted);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, rewards.length + expected.transfers);
        check(logs, rewards);
        for (uint256 i = 0; i < holders.length; ++i) {
            vm.assertEq(ltz.balanceOf(holders[i]), expected.balances[i]);
        }
        vm.assertEq(available(MINTER), CAPACITY - (expected.total + UNIT - 1) / UNIT * UNIT);
    }

    function expect(Reward[] memory rewards, address[3] memory holders) private view returns (Expected memory all) {
        bool isOpen = false;
        for (uint256 i = 0; i < rewards.length; ++i) {
            if (i == 0 || rewards[i].to != rewards[i - 1].to) isOpen = false;
            bool isFresh = !ltz.isRefUsed(rewards[i].ref);
            for (uint256 j = 0; j < i; ++j) {
                if (rewards[j].ref == rewards[i].ref) isFresh = false;
            }
            if (!isFresh) continue;
            for (uint256 h = 0; h < holders.length; ++h) {
                if (holders[h] == rewards[i].to) all.balances[h] += rewards[i].amount;
            }
            all.total += rewards[i].amount;
            ++all.minted;
            if (!isOpen) ++all.transfers;
            isOpen = true;
        }
    }

    /// @dev The logs tell the rewards in their order, and each transfer the sum of what was minted since the last.
    function check(Vm.Log[] memory logs, Reward[] memory rewards) private pure {
        uint256 next = 0;
        uint256 sum = 0;
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == Transfer.selector) {
                expectTransfer(logs[i], address(uint160(uint256(logs[i].topics[2]))), sum);
                vm.assertEq(logs[i].topics[2], word(rewards[next - 1].to));
                sum = 0;
                continue;
            }
            Reward memory reward = rewards[next++];
            if (logs[i].topics[0] != RewardSkipped.selector) {
                expectMinted(logs[i], reward.to, reward.ref, reward.amount);
                sum += reward.amount;
            }
        }
        vm.assertEq(next, rewards.length);
        vm.assertEq(sum, 0);
    }

    function expectMinted(Vm.Log memory log, address to, bytes32 ref, uint256 amount) private pure {
        vm.assertEq(log.topics[0], RewardMinted.selector);
        vm.assertEq(log.topics[1], word(to));
        vm.assertEq(log.topics[2], ref);
        vm.assertEq(abi.decode(log.data, (uint256)), amount);
    }

    function expectTransfer(Vm.Log memory log, address to, uint256 amount) private pure {
        vm.assertEq(log.topics[0], Transfer.selector);
        vm.assertEq(log.topics[1], bytes32(0));
        vm.assertEq(log.topics[2], word(to));
        vm.assertEq(abi.decode(log.data, (uint256)), amount);
    }

    function word(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
