// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";

/// @notice Creating and changing collections, and what their tokens say of themselves.
contract PerkNFTCollections is PerkNFTSpec {
    function expectNotBrand(uint256 id, address caller) private {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.NotBrand.selector, id, caller));
    }

    function expectUnknown(uint256 id) private {
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.UnknownCollection.selector, id));
    }

    function requireSame(IPerkNFT.CollectionParams memory left, IPerkNFT.CollectionParams memory right) private pure {
        vm.assertEq(abi.encode(left), abi.encode(right), "params");
    }

    function test_a_new_collection_is_told_and_kept() public {
        IPerkNFT.CollectionParams memory p = IPerkNFT.CollectionParams({
            brand: ann, payout: bob, price: 1, maxSupply: 2, maxPerUser: 3, charges: 4, active: false, requiresSig: true
        });
        vm.expectEmit(address(perks));
        emit CollectionCreated(4, ann, p, "somewhere");
        vm.assertEq(create(p, "somewhere"), 4);
        IPerkNFT.CollectionInfo memory info = perks.collection(4);
        requireSame(info.params, p);
        vm.assertEq(info.minted, 0);
        vm.assertEq(info.uri, "somewhere");
        vm.assertEq(perks.collectionCount(), 4);
    }

    function testFuzz_every_parameter_is_kept(IPerkNFT.CollectionParams memory p, string memory uri) public {
        vm.assume(p.brand != address(0) && p.payout != address(0));
        vm.assume(p.payout != address(perks) && p.payout != address(ltz));
        uint256 id = create(p, uri);
        requireSame(perks.collection(id).params, p);
        vm.assertEq(perks.collection(id).uri, uri);
        requireSame(perks.collection(FREE).params, freePerk());
    }

    function test_only_a_registrar_creates() public {
        address[4] memory others = [ADMIN, BRAND, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REGISTRAR_ROLE);
            vm.prank(others[i]);
            perks.createCollection(freePerk(), "");
        }
    }

    function test_a_collection_needs_a_brand() public {
        IPerkNFT.CollectionParams memory p = freePerk();
        p.brand = address(0);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.BadBrand.selector, address(0)));
        create(p, "");
    }

    function test_a_payout_where_ltz_would_be_lost_is_refused() public {
        address[3] memory lost = [address(0), address(perks), address(ltz)];
        IPerkNFT.CollectionParams memory p = freePerk();
        for (uint256 i = 0; i < lost.length; ++i) {
            p.payout = lost[i];
            vm.expectRevert(abi.encodeWithSelector(IPerkNFT.BadPayout.selector, lost[i]));
            create(p, "");
            vm.expectRevert(abi.encodeWithSelector(IPerkNFT.BadPayout.selector, lost[i]));
            vm.prank(REGISTRAR);
            perks.setPayout(PRICED, lost[i]);
        }
        vm.assertEq(perks.collectionCount(), 3);
    }

    function test_an_update_is_told_and_changes_what_may_change() public {
        vm.expectEmit(address(perks));
        emit CollectionUpdated(PRICED, PAYOUT, 7 ether, 50, 9, false);
        vm.prank(BRAND);
        perks.updateCollection(PRICED, 7 ether, 50, 9, false);
        IPerkNFT.CollectionParams memory expected = pricedPerk();
        (expected.price, expected.maxSupply, expected.maxPerUser, expected.active) = (7 ether, 50, 9, false);
        requireSame(perks.collection(PRICED).params, expected);
        requireSame(perks.collection(FREE).params, freePerk());
    }

    function test_a_registrar_updates_too() public {
        vm.prank(REGISTRAR);
        perks.updateCollection(PRICED, 1, 0, 0, true);
        vm.assertEq(perks.collection(PRICED).params.price, 1);
    }

    function test_a_brand_whose_key_was_stolen_loses_its_collection_for_good() public {
        vm.expectEmit(address(perks));
        emit CollectionBrandSet(PRICED, bob);
        vm.prank(REGISTRAR);
        perks.setBrand(PRICED, bob);
        IPerkNFT.CollectionParams memory expected = pricedPerk();
        expected.brand = bob;
        requireSame(perks.collection(PRICED).params, expected);
        requireSame(perks.collection(FREE).params, freePerk());
        expectNotBrand(PRICED, BRAND);
        vm.prank(BRAND);
        perks.updateCollection(PRICED, 0, 0, 0, true);
        vm.prank(bob);
        perks.updateCollection(PRICED, PRICE, 100, 2, false);
        vm.assertFalse(perks.collection(PRICED).params.active);
    }

    function test_only_a_registrar_gives_a_collection_away_and_never_to_nobody() public {
        address[4] memory others = [ADMIN, BRAND, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REGISTRAR_ROLE);
            vm.prank(others[i]);
            perks.setBrand(PRICED, others[i]);
        }
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.BadBrand.selector, address(0)));
        vm.prank(REGISTRAR);
        perks.setBrand(PRICED, address(0));
    }

    function test_only_brand_and_registrar_update() public {
        IPerkNFT.CollectionParams memory other = freePerk();
        other.brand = bob;
        create(other, "");
        address[5] memory others = [ADMIN, PAYOUT, RELAYER, bob, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectNotBrand(PRICED, others[i]);
            vm.prank(others[i]);
            perks.updateCollection(PRICED, 1, 0, 0, true);
        }
    }

    function test_only_a_registrar_redirects_a_payout() public {
        vm.expectEmit(address(perks));
        emit CollectionUpdated(PRICED, bob, PRICE, 100, 2, true);
        vm.prank(REGISTRAR);
        perks.setPayout(PRICED, bob);
        vm.assertEq(perks.collection(PRICED).params.payout, bob);
        address[4] memory others = [ADMIN, BRAND, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REGISTRAR_ROLE);
            vm.prank(others[i]);
            perks.setPayout(PRICED, others[i]);
        }
    }

    function test_a_supply_may_sink_to_what_was_minted_and_no_lower() public {
        claimFor(ann, FREE, 0);
        claimFor(bob, FREE, 0);
        IPerkNFT.CollectionParams memory p = freePerk();
        p.maxSupply = 2;
        update(FREE, p);
        p.maxSupply = 1;
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.SupplyBelowMinted.selector, FREE, 2));
        update(FREE, p);
        p.maxSupply = 0;
        update(FREE, p);
        vm.assertEq(perks.collection(FREE).params.maxSupply, 0);
        vm.assertEq(minted(FREE), 2);
    }

    function test_an_unknown_collection_is_named() public {
        uint256[2] memory unknown = [uint256(0), 4];
        for (uint256 i = 0; i < unknown.length; ++i) {
            uint256 id = unknown[i];
            expectUnknown(id);
            perks.collection(id);
            expectUnknown(id);
            vm.prank(REGISTRAR);
            perks.updateCollection(id, 1, 0, 0, true);
            expectUnknown(id);
            vm.prank(REGISTRAR);
            perks.setPayout(id, bob);
            expectUnknown(id);
            vm.prank(REGISTRAR);
            perks.setBrand(id, bob);
            expectUnknown(id);
            claimFor(ann, id, 0);
            expectUnknown(id);
            perks.claim(id, PRICE, REF);
            expectUnknown(id);
            perks.claimWithSig(ann, id, PRICE, 0, REF, block.timestamp, "");
        }
        vm.assertEq(perks.claimsOf(ann, 4), 0);
    }

    function test_tokens_share_a_document_unless_its_uri_is_a_folder() public {
        allow(ann, address(perks), PRICE * 2);
        vm.assertEq(perks.tokenURI(claimFor(ann, FREE, 0)), "https://perks.example/coffee.json");
        // 2 << 32 | 1
        vm.assertEq(perks.tokenURI(claimFor(ann, PRICED, 0)), "https://perks.example/dinner/8589934593");
        vm.prank(ann);
        vm.assertEq(perks.tokenURI(perks.claim(SIGNED, PRICE, REF)), "");
    }

    function test_a_token_that_is_none_has_no_uri() public {
        vm.expectRevert(abi.encodeWithSignature("ERC721NonexistentToken(uint256)", tokenOf(FREE, 1)));
        perks.tokenURI(tokenOf(FREE, 1));
    }
}
