// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Reward} from "../src/ILTZ.sol";
import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice What transactions cost, intrinsic gas and calldata included: `isolate` makes each top-level call one.
/// Ceilings are held here; the exact figures lie in snapshots/LTZ.json.
/// forge-config: default.isolate = true
contract LTZGas is LTZSpec {
    uint96 private constant AMOUNT = 12.345678 ether;
    uint64 private constant MANY = 100;

    function setUp() public override {
        super.setUp();
        // The steady state of a running system: the word of the bitmap and the bucket have been written before.
        mint(STRANGER, AMOUNT, refOf(0));
        vm.warp(block.timestamp + 60);
    }

    function test_a_single_mint_to_a_new_holder() public {
        mint(ann, AMOUNT, refOf(1));
        hold("mint single, new holder", 69_000, 1);
    }

    function test_a_single_mint_to_an_existing_holder() public {
        mint(STRANGER, AMOUNT, refOf(1));
        hold("mint single, existing holder", 52_000, 1);
    }

    function test_a_batch_of_mints_to_new_holders() public {
        mintBatch(batch(1));
        hold("mint batch of 100, each, new holders", 30_000, MANY);
    }

    function test_a_batch_of_mints_to_existing_holders() public {
        mintBatch(batch(1));
        mintBatch(batch(1 + MANY));
        hold("mint batch of 100, each, existing holders", 12_500, MANY);
    }

    function test_a_batch_of_mints_with_2_rewards_for_each_holder() public {
        holdRuns(2, 8_500, "mint batch of 100, each, 2 rewards a holder");
    }

    function test_a_batch_of_mints_with_4_rewards_for_each_holder() public {
        holdRuns(4, 6_600, "mint batch of 100, each, 4 rewards a holder");
    }

    function test_a_batch_of_mints_with_10_rewards_for_each_holder() public {
        holdRuns(10, 5_500, "mint batch of 100, each, 10 rewards a holder");
    }

    // Of these, 22,100 pay for the slot that remembers a random nonce; nonces in sequence would share one.
    function test_a_relayed_transfer_to_a_new_holder() public {
        relayTransfer();
        hold("transferWithAuthorization, new holder", 84_000, 1);
    }

    function test_a_relayed_transfer_to_an_existing_holder() public {
        mint(bob, AMOUNT, refOf(1));
        relayTransfer();
        hold("transferWithAuthorization, existing holder", 67_000, 1);
    }

    function relayTransfer() private {
        mint(ann, AMOUNT, refOf(200));
        Payment memory paid = Payment(ann, bob, AMOUNT / 2, 0, block.timestamp + 1 hours, keccak256("a random nonce"));
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        vm.prank(MINTER);
        pay(ltz, paid, signed);
    }

    /// @dev Addresses and uuids look random, as in life, since a zero byte of calldata costs a quarter.
    function batch(uint64 firstSeq) private pure returns (Reward[] memory rewards) {
        return batch(firstSeq, 1);
    }

    /// @dev The rewards of a holder stand one behind the other.
    function batch(uint64 firstSeq, uint64 each) private pure returns (Reward[] memory rewards) {
        rewards = new Reward[](MANY);
        for (uint64 i = 0; i < MANY; ++i) {
            address to = address(uint160(uint256(keccak256(abi.encode("holder", i / each)))));
            rewards[i] = Reward(to, AMOUNT, refOf(firstSeq + i));
        }
    }

    function holdRuns(uint64 each, uint256 ceiling, string memory what) private {
        mintBatch(batch(1));
        mintBatch(batch(1 + MANY, each));
        hold(what, ceiling, MANY);
    }

    function hold(string memory what, uint256 ceiling, uint256 items) private {
        uint256 used = vm.snapshotGasLastCall("LTZ", what);
        vm.assertLe(used / items, ceiling, what);
    }
}
