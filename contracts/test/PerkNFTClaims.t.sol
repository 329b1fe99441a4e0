// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";

/// @notice Claiming tokens: who pays whom, how often, how many.
contract PerkNFTClaims is PerkNFTSpec {
    function setUp() public override {
        super.setUp();
        allow(ann, address(perks), FUNDS);
        allow(bob, address(perks), FUNDS);
    }

    function expectLimit(uint256 id, uint256 claims, uint256 most) private {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ClaimLimitReached.selector, id, claims, most));
    }

    function expectSoldOut(uint256 id) private {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.SoldOut.selector, id));
    }

    function test_a_claim_pays_the_payout_gives_the_token_and_says_so() public {
        uint256 tokenId = tokenOf(PRICED, 1);
        vm.expectEmit(address(perks));
        emit Claimed(PRICED, ann, tokenId, PRICE, 1, REF);
        vm.assertEq(claimFor(ann, PRICED, 0), tokenId);
        vm.assertEq(perks.ownerOf(tokenId), ann);
        vm.assertEq(perks.balanceOf(ann), 1);
        vm.assertEq(perks.claimsOf(ann, PRICED), 1);
        vm.assertEq(minted(PRICED), 1);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - PRICE);
        vm.assertEq(ltz.balanceOf(PAYOUT), PRICE);
        vm.assertEq(ltz.balanceOf(address(perks)), 0);
        vm.assertEq(ltz.allowance(ann, address(perks)), FUNDS - PRICE);
        requireCharges(tokenId, 10, 10);
    }

    function test_a_free_claim_needs_no_ltz() public {
        allow(ann, address(perks), 0);
        vm.assertEq(claimFor(ann, FREE, 0), tokenOf(FREE, 1));
        vm.assertEq(ltz.balanceOf(PAYOUT), 0);
    }

    function test_serials_count_from_one_in_each_collection() public {
        vm.assertEq(claimFor(ann, FREE, 0), tokenOf(FREE, 1));
        vm.assertEq(claimFor(ann, PRICED, 0), tokenOf(PRICED, 1));
        vm.assertEq(claimFor(bob, PRICED, 0), tokenOf(PRICED, 2));
        vm.assertEq(claimFor(ann, PRICED, 1), tokenOf(PRICED, 3));
    }

    function test_a_user_claims_for_himself() public {
        vm.expectEmit(address(perks));
        emit Claimed(PRICED, ann, tokenOf(PRICED, 1), PRICE, 1, REF);
        vm.prank(ann);
        vm.assertEq(perks.claim(PRICED, PRICE, REF), tokenOf(PRICED, 1));
        vm.assertEq(ltz.balanceOf(ann), FUNDS - PRICE);
        vm.assertEq(perks.ownerOf(tokenOf(PRICED, 1)), ann);
    }

    function test_a_claim_made_before_is_not_made_again() public {
        claimFor(ann, PRICED, 0);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ClaimCountMismatch.selector, 0, 1));
        claimFor(ann, PRICED, 0);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ClaimCountMismatch.selector, 2, 1));
        claimFor(ann, PRICED, 2);
        vm.assertEq(ltz.balanceOf(PAYOUT), PRICE);
    }

    function test_nobody_claims_more_often_than_allowed() public {
        claimFor(ann, PRICED, 0);
        claimFor(ann, PRICED, 1);
        expectLimit(PRICED, 2, 2);
        claimFor(ann, PRICED, 2);
        expectLimit(PRICED, 2, 2);
        vm.prank(ann);
        perks.claim(PRICED, PRICE, REF);
        claimFor(bob, PRICED, 0);
    }

    function test_giving_a_token_away_does_not_free_a_claim() public {
        claimFor(ann, FREE, 0);
        vm.prank(ann);
        perks.transferFrom(ann, bob, tokenOf(FREE, 1));
        vm.assertEq(perks.claimsOf(ann, FREE), 1);
        vm.assertEq(perks.claimsOf(bob, FREE), 0);
        expectLimit(FREE, 1, 1);
        claimFor(ann, FREE, 1);
        claimFor(bob, FREE, 0);
        vm.assertEq(perks.balanceOf(bob), 2);
    }

    function test_a_lowered_limit_stops_further_claims_and_undoes_none() public {
        claimFor(ann, PRICED, 0);
        claimFor(ann, PRICED, 1);
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.maxPerUser = 1;
        update(PRICED, p);
        expectLimit(PRICED, 2, 1);
        claimFor(ann, PRICED, 2);
        vm.assertEq(perks.claimsOf(ann, PRICED), 2);
    }

    function test_without_a_limit_a_user_claims_on() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.maxPerUser = 0;
        update(FREE, p);
        for (uint256 i = 0; i < 20; ++i) {
            claimFor(ann, FREE, i);
        }
        vm.assertEq(perks.claimsOf(ann, FREE), 20);
    }

    function test_without_a_limit_the_counter_ends_at_65535_and_does_not_wrap() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.maxPerUser = 0;
        update(FREE, p);
        // 65,535 claims take too long: the counter is set where the compiler put it.
        bytes32 word = claimsWord();
        vm.store(address(perks), word, bytes32(uint256(65_534) << 16));
        vm.assertEq(perks.claimsOf(ann, FREE), 65_534);
        claimFor(ann, FREE, 65_534);
        expectLimit(FREE, 65_535, 65_535);
        claimFor(ann, FREE, 65_535);
    }

    function claimsWord() private returns (bytes32 word) {
        claimFor(ann, FREE, 0);
        for (uint256 slot = 0; slot < 32; ++slot) {
            word = keccak256(abi.encode(uint256(0), keccak256(abi.encode(ann, slot))));
            if (vm.load(address(perks), word) == bytes32(uint256(1) << 16)) return word;
        }
        revert("no slot holds the claims");
    }

    function test_a_collection_sells_out() public {
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.maxSupply = 2;
        update(PRICED, p);
        claimFor(ann, PRICED, 0);
        claimFor(bob, PRICED, 0);
        expectSoldOut(PRICED);
        claimFor(ann, PRICED, 1);
        vm.assertEq(minted(PRICED), 2);
        vm.assertEq(perks.claimsOf(ann, PRICED), 1);
        p.maxSupply = 3;
        update(PRICED, p);
        claimFor(ann, PRICED, 1);
        expectSoldOut(PRICED);
        claimFor(bob, PRICED, 1);
    }

    function test_without_a_supply_the_serials_end_at_the_32nd_bit_and_do_not_wrap() public {
        claimFor(ann, FREE, 0);
        bytes32 slot = suppliesSlot();
        uint256 supplies = uint256(vm.load(address(perks), slot));
        // 2^32 claims take too long: one short of the end, beside what else is in the slot.
        vm.store(address(perks), slot, bytes32(supplies + ((uint256(type(uint32).max) - 2) << 32)));
        vm.assertEq(minted(FREE), type(uint32).max - 1);
        vm.assertEq(claimFor(bob, FREE, 0), tokenOf(FREE, type(uint32).max));
        expectSoldOut(FREE);
        claimFor(STRANGER, FREE, 0);
    }

    /// @dev The second slot of a collection follows the one with payout and price.
    function suppliesSlot() private view returns (bytes32) {
        for (uint256 slot = 0; slot < 32; ++slot) {
            uint256 first = uint256(keccak256(abi.encode(FREE, slot)));
            if (vm.load(address(perks), bytes32(first)) == bytes32(uint256(uint160(PAYOUT)))) {
                return bytes32(first + 1);
            }
        }
        revert("no slot holds the supplies");
    }

    function test_an_inactive_collection_gives_nothing() public {
        claimFor(ann, PRICED, 0);
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.active = false;
        update(PRICED, p);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.CollectionInactive.selector, PRICED));
        claimFor(ann, PRICED, 1);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.CollectionInactive.selector, PRICED));
        vm.prank(ann);
        perks.claim(PRICED, PRICE, REF);
        // What is held is still worth something.
        vm.assertEq(redeem(tokenOf(PRICED, 1), ann, 1, 10), 9);
    }

    function test_nobody_pays_more_than_he_said() public {
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.price = PRICE + 1;
        update(PRICED, p);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.PriceAboveMax.selector, PRICE + 1, PRICE));
        claimFor(ann, PRICED, 0);
        p.price = PRICE - 1;
        update(PRICED, p);
        vm.expectEmit(address(perks));
        emit Claimed(PRICED, ann, tokenOf(PRICED, 1), PRICE - 1, 1, REF);
        claimFor(ann, PRICED, 0);
        vm.assertEq(ltz.balanceOf(PAYOUT), PRICE - 1);
    }

    function test_the_zero_address_claims_nothing() public {
        vm.expectRevert(abi.encodeWithSignature("ERC721InvalidReceiver(address)", address(0)));
        claimFor(address(0), FREE, 0);
    }

    function test_a_collection_may_demand_a_signature() public {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.SignatureRequired.selector, SIGNED));
        claimFor(ann, SIGNED, 0);
        // The user himself is as good as his signature.
        vm.prank(ann);
        vm.assertEq(perks.claim(SIGNED, PRICE, REF), tokenOf(SIGNED, 1));
    }

    function test_claims_of_sixteen_collections_in_a_word_do_not_disturb_each_other() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.maxPerUser = 0;
        while (perks.collectionCount() < 40) {
            create(p, "");
        }
        for (uint256 id = 4; id <= 40; ++id) {
            for (uint256 i = 0; i < id % 5; ++i) {
                claimFor(ann, id, i);
            }
        }
        for (uint256 id = 4; id <= 40; ++id) {
            vm.assertEq(perks.claimsOf(ann, id), id % 5);
            vm.assertEq(minted(id), id % 5);
        }
    }

    function testFuzz_any_price_up_to_the_maximum_is_paid_exactly(uint96 price, uint256 maxPrice) public {
        price %= uint96(FUNDS);
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.price = price;
        update(PRICED, p);
        if (price > maxPrice) {
            vm.expectRevert(abi.encodeWithSelector(IPerkNFT.PriceAboveMax.selector, price, maxPrice));
        }
        vm.prank(RELAYER);
        perks.claimFor(ann, PRICED, maxPrice, 0, REF);
        uint256 paid = price > maxPrice ? 0 : price;
        vm.assertEq(ltz.balanceOf(PAYOUT), paid);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - paid);
    }
}
