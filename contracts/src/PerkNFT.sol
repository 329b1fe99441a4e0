// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Strings} from "@openzeppelin/contracts/utils/Strings.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {IPerkNFT} from "./IPerkNFT.sol";
import {LTZ} from "./LTZ.sol";
import {PackedCounts} from "./PackedCounts.sol";
import {Relayed} from "./Relayed.sol";

/// @title Perks as tokens
/// @notice See {IPerkNFT}. Holds no LTZ: a price goes from the user to the payout.
contract PerkNFT is IPerkNFT, ERC721, Relayed {
    using PackedCounts for PackedCounts.Counts;
    using SafeERC20 for LTZ;

    /// @notice May create collections, update them, and set where their price goes. A cold key.
    bytes32 public constant REGISTRAR_ROLE = keccak256("REGISTRAR_ROLE");

    /// @notice May redeem charges. Held by the operator's relay wallet.
    bytes32 public constant REDEEMER_ROLE = keccak256("REDEEMER_ROLE");

    bytes32 private constant CLAIM_TYPEHASH = keccak256(
        "Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,uint256 deadline)"
    );

    uint256 private constant SERIAL_BITS = 32;

    /// @dev A claim reads the first two slots and no other. `payout` is zero only where there is no collection.
    struct Collection {
        address payout;
        uint96 price;
        uint32 maxSupply;
        uint32 minted;
        uint16 maxPerUser;
        uint16 charges;
        bool active;
        bool requiresSig;
        address brand;
        string uri;
    }

    /// @inheritdoc IPerkNFT
    uint256 public collectionCount;

    mapping(uint256 id => Collection collection) private _collections;
    /// @dev By collection id: one word holds a user's claims of sixteen collections.
    mapping(address user => PackedCounts.Counts byCollection) private _claims;
    /// @dev By token id: one word holds the redeemed charges of sixteen neighbours.
    PackedCounts.Counts private _redeemed;

    /// @param ltz_ The deployed LTZ.
    /// @param admin Holds DEFAULT_ADMIN_ROLE: grants and revokes roles.
    /// @param adminDelay Seconds between the proposal of a new admin and its earliest acceptance.
    constructor(LTZ ltz_, address admin, uint48 adminDelay)
        ERC721("Loyalty Perks", "PERK")
        EIP712("PerkNFT", "1")
        Relayed(ltz_, admin, adminDelay)
    {}

    /// @inheritdoc IPerkNFT
    function createCollection(CollectionParams calldata p, string calldata uri)
        external
        onlyRole(REGISTRAR_ROLE)
        returns (uint256 id)
    {
        if (p.brand == address(0)) revert BadBrand(p.brand);
        _requirePayable(p.payout);
        id = ++collectionCount;
        _collections[id] = Collection({
            payout: p.payout,
            price: p.price,
            maxSupply: p.maxSupply,
            minted: 0,
            maxPerUser: p.maxPerUser,
            charges: p.charges,
            active: p.active,
            requiresSig: p.requiresSig,
            brand: p.brand,
            uri: uri
        });
        emit CollectionCreated(id, p.brand, p, uri);
    }

    /// @inheritdoc IPerkNFT
    function updateCollection(uint256 id, uint96 price, uint32 maxSupply, uint16 maxPerUser, bool active) external {
        Collection storage c = _existing(id);
        if (_msgSender() != c.brand && !hasRole(REGISTRAR_ROLE, _msgSender())) revert NotBrand(id, _msgSender());
        if (maxSupply != 0 && maxSupply < c.minted) revert SupplyBelowMinted(id, c.minted);
        c.price = price;
        c.maxSupply = maxSupply;
        c.maxPerUser = maxPerUser;
        c.active = active;
        _tellUpdate(id, c);
    }

    /// @inheritdoc IPerkNFT
    function setPayout(uint256 id, address payout) external onlyRole(REGISTRAR_ROLE) {
        Collection storage c = _existing(id);
        _requirePayable(payout);
        c.payout = payout;
        _tellUpdate(id, c);
    }

    /// @inheritdoc IPerkNFT
    function setBrand(uint256 id, address brand) external onlyRole(REGISTRAR_ROLE) {
        Collection storage c = _existing(id);
        if (brand == address(0)) revert BadBrand(brand);
        c.brand = brand;
        emit CollectionBrandSet(id, brand);
    }

    /// @inheritdoc IPerkNFT
    function claimFor(address user, uint256 id, uint256 maxPrice, uint256 expectedClaims, bytes32 ref)
        external
        onlyRole(RELAYER_ROLE)
        returns (uint256 tokenId)
    {
        Collection storage c = _existing(id);
        if (c.requiresSig) revert SignatureRequired(id);
        return _claimOnce(c, user, id, maxPrice, expectedClaims, ref);
    }

    /// @inheritdoc IPerkNFT
    function claimWithSig(
        address user,
        uint256 id,
        uint256 maxPrice,
        uint256 expectedClaims,
        bytes32 ref,
        uint256 deadline,
        bytes calldata sig
    ) external returns (uint256 tokenId) {
        Collection storage c = _existing(id);
        bytes32 signed = keccak256(abi.encode(CLAIM_TYPEHASH, user, id, maxPrice, expectedClaims, ref, deadline));
        _requireSigned(user, signed, deadline, sig);
        return _claimOnce(c, user, id, maxPrice, expectedClaims, ref);
    }

    /// @inheritdoc IPerkNFT
    function claim(uint256 id, uint256 maxPrice, bytes32 ref) external returns (uint256 tokenId) {
        address user = _msgSender();
        return _claim(_existing(id), user, id, maxPrice, _claims[user].get(id), ref);
    }

    /// @inheritdoc IPerkNFT
    function redeemCharge(uint256 tokenId, address holder, uint256 amount, uint256 expectedRemaining, bytes32 ref)
        external
        onlyRole(REDEEMER_ROLE)
        returns (uint256 remaining)
    {
        address current = _requireOwned(tokenId);
        if (current != holder) revert HolderChanged(tokenId, current);
        (uint256 left,) = _charges(tokenId);
        if (left != expectedRemaining) revert ChargesMismatch(tokenId, expectedRemaining, left);
        if (amount == 0) revert ZeroAmount();
        if (amount > left) revert InsufficientCharges(tokenId, left);
        remaining = left - amount;
        // With what was redeemed before it is at most the total, which is a uint16.
        _redeemed.add(tokenId, amount);
        emit ChargeRedeemed(tokenId, holder, ref, amount, remaining);
    }

    /// @inheritdoc IPerkNFT
    function chargesOf(uint256 tokenId) external view returns (uint256 remaining, uint256 total) {
        _requireOwned(tokenId);
        return _charges(tokenId);
    }

    /// @inheritdoc IPerkNFT
    function claimsOf(address user, uint256 id) external view returns (uint256) {
        return _claims[user].get(id);
    }

    /// @inheritdoc IPerkNFT
    function collection(uint256 id) external view returns (CollectionInfo memory) {
        Collection storage c = _existing(id);
        CollectionParams memory params = CollectionParams({
            brand: c.brand,
            payout: c.payout,
            price: c.price,
            maxSupply: c.maxSupply,
            maxPerUser: c.maxPerUser,
            charges: c.charges,
            active: c.active,
            requiresSig: c.requiresSig
        });
        return CollectionInfo({params: params, minted: c.minted, uri: c.uri});
    }

    /// @notice Where a token's metadata lies: the collection's URI, followed by the token's id if it ends with a slash.
    /// @dev Anyone. Reverts with `ERC721NonexistentToken`.
    function tokenURI(uint256 tokenId) public view override returns (string memory) {
        _requireOwned(tokenId);
        string memory uri = _collections[tokenId >> SERIAL_BITS].uri;
        bytes memory text = bytes(uri);
        if (text.length == 0 || text[text.length - 1] != "/") return uri;
        return string.concat(uri, Strings.toString(tokenId));
    }

    /// @notice ERC-165: of this contract, {IRelayed}, ERC-721 with metadata, and access control.
    /// @dev Anyone. Never reverts.
    function supportsInterface(bytes4 interfaceId) public view override(ERC721, Relayed) returns (bool) {
        return interfaceId == type(IPerkNFT).interfaceId || super.supportsInterface(interfaceId);
    }

    function _isHot(bytes32 role) internal view override returns (bool) {
        return role == REDEEMER_ROLE || super._isHot(role);
    }

    function _claimOnce(
        Collection storage c,
        address user,
        uint256 id,
        uint256 maxPrice,
        uint256 expectedClaims,
        bytes32 ref
    ) private returns (uint256 tokenId) {
        uint256 claims = _claims[user].get(id);
        if (claims != expectedClaims) revert ClaimCountMismatch(expectedClaims, claims);
        return _claim(c, user, id, maxPrice, claims, ref);
    }

    /// @dev `claims` are the user's before this one. Everything is written before LTZ is called.
    function _claim(Collection storage c, address user, uint256 id, uint256 maxPrice, uint256 claims, bytes32 ref)
        private
        returns (uint256 tokenId)
    {
        if (!c.active) revert CollectionInactive(id);
        (address payout, uint256 price) = (c.payout, c.price);
        if (price > maxPrice) revert PriceAboveMax(price, maxPrice);
        uint256 most = _orMost(c.maxPerUser, type(uint16).max);
        if (claims >= most) revert ClaimLimitReached(id, claims, most);
        _claims[user].add(id, 1);
        tokenId = (id << SERIAL_BITS) | _nextSerial(c, id);
        // Not _safeMint: a claim must not depend on the receiver's code, nor run it.
        _mint(user, tokenId);
        emit Claimed(id, user, tokenId, price, claims + 1, ref);
        if (price != 0) ltz.safeTransferFrom(user, payout, price);
    }

    function _nextSerial(Collection storage c, uint256 id) private returns (uint32 serial) {
        (uint32 minted, uint256 maxSupply) = (c.minted, c.maxSupply);
        if (minted >= _orMost(maxSupply, type(uint32).max)) revert SoldOut(id);
        serial = minted + 1;
        c.minted = serial;
    }

    /// @dev Zero stands for no limit but the counter's own.
    function _orMost(uint256 limit, uint256 most) private pure returns (uint256) {
        return limit == 0 ? most : limit;
    }

    function _tellUpdate(uint256 id, Collection storage c) private {
        emit CollectionUpdated(id, c.payout, c.price, c.maxSupply, c.maxPerUser, c.active);
    }

    function _existing(uint256 id) private view returns (Collection storage c) {
        c = _collections[id];
        if (c.payout == address(0)) revert UnknownCollection(id);
    }

    function _requirePayable(address payout) private view {
        if (_losesLTZ(payout)) revert BadPayout(payout);
    }

    function _charges(uint256 tokenId) private view returns (uint256 remaining, uint256 total) {
        total = _collections[tokenId >> SERIAL_BITS].charges;
        remaining = total - _redeemed.get(tokenId);
    }
}
