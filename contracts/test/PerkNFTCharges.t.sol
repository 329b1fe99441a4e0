// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";

/// @notice Redeeming the charges of tokens.
contract PerkNFTCharges is PerkNFTSpec {
    uint256 private token;

    function setUp() public override {
        super.setUp();
        token = claimFor(ann, FREE, 0);
    }

    function expectMismatch(uint256 expected, uint256 actual) private {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ChargesMismatch.selector, token, expected, actual));
    }

    function test_a_redemption_takes_charges_and_says_so() public {
        vm.expectEmit(address(perks));
        emit ChargeRedeemed(token, ann, REF, 2, 1);
        vm.assertEq(redeem(token, ann, 2, 3), 1);
        requireCharges(token, 1, 3);
    }

    function test_charges_can_be_redeemed_to_zero_and_no_further() public {
        redeem(token, ann, 1, 3);
        redeem(token, ann, 1, 2);
        redeem(token, ann, 1, 1);
        requireCharges(token, 0, 3);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.InsufficientCharges.selector, token, 0));
        redeem(token, ann, 1, 0);
    }

    function test_more_than_is_left_is_refused_whole() public {
        redeem(token, ann, 1, 3);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.InsufficientCharges.selector, token, 2));
        redeem(token, ann, 3, 2);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.InsufficientCharges.selector, token, 2));
        redeem(token, ann, type(uint256).max, 2);
        requireCharges(token, 2, 3);
    }

    function test_a_redemption_made_before_is_not_made_again() public {
        redeem(token, ann, 1, 3);
        expectMismatch(3, 2);
        redeem(token, ann, 1, 3);
        expectMismatch(1, 2);
        redeem(token, ann, 1, 1);
        requireCharges(token, 2, 3);
    }

    function test_a_redemption_of_nothing_is_refused() public {
        vm.expectRevert(IPerkNFT.ZeroAmount.selector);
        redeem(token, ann, 0, 3);
    }

    function test_only_a_redeemer_redeems() public {
        address[6] memory others = [ADMIN, BRAND, RELAYER, REGISTRAR, ann, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REDEEMER_ROLE);
            vm.prank(others[i]);
            perks.redeemCharge(token, ann, 1, 3, REF);
        }
    }

    function test_charges_travel_with_the_token() public {
        redeem(token, ann, 1, 3);
        vm.prank(ann);
        perks.transferFrom(ann, bob, token);
        requireCharges(token, 2, 3);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.HolderChanged.selector, token, bob));
        redeem(token, ann, 1, 2);
        vm.expectEmit(address(perks));
        emit ChargeRedeemed(token, bob, REF, 1, 1);
        redeem(token, bob, 1, 2);
    }

    function test_a_token_that_is_none_has_no_charges() public {
        bytes memory reason = abi.encodeWithSignature("ERC721NonexistentToken(uint256)", token + 1);
        vm.expectRevert(reason);
        perks.chargesOf(token + 1);
        vm.expectRevert(reason);
        redeem(token + 1, ann, 1, 3);
        vm.expectRevert(reason);
        redeem(token + 1, address(0), 1, 3);
    }

    function test_a_collection_without_charges_has_none_to_redeem() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.charges = 0;
        uint256 bare = claimFor(ann, create(p, ""), 0);
        requireCharges(bare, 0, 0);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.InsufficientCharges.selector, bare, 0));
        redeem(bare, ann, 1, 0);
    }

    function test_the_most_charges_a_token_can_have_are_all_redeemable() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.charges = type(uint16).max;
        uint256 full = claimFor(ann, create(p, ""), 0);
        vm.assertEq(redeem(full, ann, 65_535, 65_535), 0);
        requireCharges(full, 0, 65_535);
    }

    function test_counts_that_are_full_do_not_spill_into_their_neighbours() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        (p.maxPerUser, p.charges) = (0, type(uint16).max);
        uint256 id = create(p, "");
        for (uint256 serial = 1; serial <= 18; ++serial) {
            claimFor(ann, id, serial - 1);
        }
        for (uint256 serial = 1; serial <= 18; serial += 2) {
            redeem(tokenOf(id, serial), ann, 65_534, 65_535);
            redeem(tokenOf(id, serial), ann, 1, 1);
        }
        for (uint256 serial = 1; serial <= 18; ++serial) {
            requireCharges(tokenOf(id, serial), serial % 2 == 0 ? 65_535 : 0, 65_535);
        }
    }

    function testFuzz_neighbours_in_a_word_do_not_disturb_each_other(uint256 seed) public {
        IPerkNFT.CollectionParams memory p = freePerk();
        (p.maxPerUser, p.charges) = (0, 40);
        uint256 id = create(p, "");
        uint256[20] memory redeemed;
        for (uint256 i = 0; i < redeemed.length; ++i) {
            claimFor(ann, id, i);
        }
        for (uint256 i = 0; i < 40; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 serial = seed % redeemed.length;
            uint256 left = 40 - redeemed[serial];
            if (left == 0) continue;
            uint256 amount = between(seed >> 8, 1, left);
            redeem(tokenOf(id, serial + 1), ann, amount, left);
            redeemed[serial] += amount;
        }
        for (uint256 i = 0; i < redeemed.length; ++i) {
            requireCharges(tokenOf(id, i + 1), 40 - redeemed[i], 40);
        }
    }
}
