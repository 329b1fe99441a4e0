// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LTZHandler} from "./support/LTZHandler.sol";
import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice What holds whatever anybody does. {LTZHandler} does it.
contract LTZInvariants is LTZSpec {
    LTZHandler private handler;

    function setUp() public override {
        super.setUp();
        address second = address(0x3148);
        grant(minterRole, second);
        // Low enough to be met.
        limit(MINTER, 50 ether, 1 days);
        limit(second, 30 ether, 1 hours);
        handler = new LTZHandler(ltz);
    }

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_balances_sum_to_the_supply_which_is_minted_less_burned() public view {
        uint256 sum = 0;
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            sum += ltz.balanceOf(handler.users(i));
        }
        vm.assertEq(sum, ltz.totalSupply(), "sum of balances");
        vm.assertEq(ltz.totalSupply(), handler.minted() - handler.burned(), "minted less burned");
    }

    function invariant_a_seq_mints_at_most_once_and_the_bitmap_knows_it() public view {
        uint256 bits = 0;
        for (uint256 word = 0; word < 2; ++word) {
            vm.assertEq(ltz.refWord(word), handler.expectedWords(word), "the bitmap");
            for (uint256 rest = ltz.refWord(word); rest != 0; rest &= rest - 1) {
                ++bits;
            }
        }
        vm.assertEq(handler.rewardsMinted(), bits, "rewards minted");
    }

    function invariant_no_minter_mints_more_than_its_limits_allow() public view {
        for (uint256 i = 0; i < handler.minterCount(); ++i) {
            address minter = handler.minters(i);
            (uint256 capacity,, uint256 left) = ltz.mintLimit(minter);
            vm.assertLe(left, capacity, "a bucket overflows");
            vm.assertLe(handler.mintedBy(minter) + left / 1e12, handler.allowedTo(minter), "minted and available");
        }
    }
}
