// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../../src/IPerkNFT.sol";
import {PerkNFT} from "../../src/PerkNFT.sol";
import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice A deployed PerkNFT with three collections, and words to speak about it.
abstract contract PerkNFTSpec is RelayedSpec {
    event CollectionCreated(
        uint256 indexed collectionId, address indexed brand, IPerkNFT.CollectionParams params, string uri
    );
    event CollectionBrandSet(uint256 indexed collectionId, address indexed brand);
    event CollectionUpdated(
        uint256 indexed collectionId, address payout, uint96 price, uint32 maxSupply, uint16 maxPerUser, bool active
    );
    event Claimed(
        uint256 indexed collectionId,
        address indexed user,
        uint256 indexed tokenId,
        uint256 price,
        uint256 claims,
        bytes32 ref
    );
    event ChargeRedeemed(
        uint256 indexed tokenId, address indexed holder, bytes32 indexed ref, uint256 amount, uint256 remaining
    );

    bytes32 internal constant REDEEMER_ROLE = keccak256("REDEEMER_ROLE");
    address internal constant REDEEMER = address(0x4ED);

    uint256 internal constant FREE = 1;
    uint256 internal constant PRICED = 2;
    uint256 internal constant SIGNED = 3;
    uint96 internal constant PRICE = 5 ether;
    bytes32 internal constant REF = keccak256("a reference");

    PerkNFT internal perks;

    function setUp() public virtual override {
        super.setUp();
        perks = new PerkNFT(ltz, ADMIN, ADMIN_DELAY);
        grantOn(address(perks), RELAYER_ROLE, RELAYER);
        grantOn(address(perks), GUARDIAN_ROLE, GUARDIAN);
        grantOn(address(perks), REGISTRAR_ROLE, REGISTRAR);
        grantOn(address(perks), REDEEMER_ROLE, REDEEMER);
        create(freePerk(), "https://perks.example/coffee.json");
        create(pricedPerk(), "https://perks.example/dinner/");
        IPerkNFT.CollectionParams memory signed = pricedPerk();
        signed.requiresSig = true;
        create(signed, "");
    }

    function freePerk() internal pure returns (IPerkNFT.CollectionParams memory p) {
        p = pricedPerk();
        (p.price, p.maxSupply, p.maxPerUser, p.charges) = (0, 0, 1, 3);
    }

    function pricedPerk() internal pure returns (IPerkNFT.CollectionParams memory) {
        return IPerkNFT.CollectionParams({
            brand: BRAND,
            payout: PAYOUT,
            price: PRICE,
            maxSupply: 100,
            maxPerUser: 2,
            charges: 10,
            active: true,
            requiresSig: false
        });
    }

    function create(IPerkNFT.CollectionParams memory p, string memory uri) internal returns (uint256) {
        vm.prank(REGISTRAR);
        return perks.createCollection(p, uri);
    }

    function update(uint256 id, IPerkNFT.CollectionParams memory p) internal {
        vm.prank(BRAND);
        perks.updateCollection(id, p.price, p.maxSupply, p.maxPerUser, p.active);
    }

    function claimFor(address user, uint256 id, uint256 expectedClaims) internal returns (uint256) {
        vm.prank(RELAYER);
        return perks.claimFor(user, id, PRICE, expectedClaims, REF);
    }

    function redeem(uint256 tokenId, address holder, uint256 amount, uint256 expectedRemaining)
        internal
        returns (uint256)
    {
        vm.prank(REDEEMER);
        return perks.redeemCharge(tokenId, holder, amount, expectedRemaining, REF);
    }

    function requireCharges(uint256 tokenId, uint256 remaining, uint256 total) internal view {
        (uint256 left, uint256 all) = perks.chargesOf(tokenId);
        vm.assertEq(left, remaining);
        vm.assertEq(all, total);
    }

    function minted(uint256 id) internal view returns (uint256) {
        return perks.collection(id).minted;
    }

    function tokenOf(uint256 id, uint256 serial) internal pure returns (uint256) {
        return (id << 32) | serial;
    }
}
