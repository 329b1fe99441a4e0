// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Perks as tokens
/// @notice ERC-721. A brand offers collections; users claim tokens of them for LTZ, or for nothing; each token carries
/// charges, which are redeemed one by one and travel with the token.
///
/// Amounts are in wei of LTZ (10^-18 LTZ). PerkNFT is an {IRelayed} too.
/// A token's id is `collectionId << 32 | serial`; collections and serials count from 1.
interface IPerkNFT {
    /// @param brand May update the collection, not its payout. Not zero.
    /// @param payout Receives the price of each claim. Neither zero, nor PerkNFT itself, nor LTZ.
    /// @param price In wei of LTZ. Zero: free.
    /// @param maxSupply How many tokens there can be. Zero: 2^32 - 1.
    /// @param maxPerUser How often one user may claim, whatever he holds or gave away. Zero: 65,535 times.
    /// @param charges Of each token, for ever.
    /// @param active Whether tokens can be claimed. Charges can be redeemed in any case.
    /// @param requiresSig Whether a relayed claim needs the user's signature. For ever.
    struct CollectionParams {
        address brand;
        address payout;
        uint96 price;
        uint32 maxSupply;
        uint16 maxPerUser;
        uint16 charges;
        bool active;
        bool requiresSig;
    }

    /// @param minted How many tokens there are; the newest serial.
    /// @param uri See `tokenURI`.
    struct CollectionInfo {
        CollectionParams params;
        uint32 minted;
        string uri;
    }

    /// @notice A collection was created.
    event CollectionCreated(uint256 indexed collectionId, address indexed brand, CollectionParams params, string uri);

    /// @notice What can change of a collection is now this.
    event CollectionUpdated(
        uint256 indexed collectionId, address payout, uint96 price, uint32 maxSupply, uint16 maxPerUser, bool active
    );

    /// @notice The collection is this brand's from now on.
    event CollectionBrandSet(uint256 indexed collectionId, address indexed brand);

    /// @notice `user` claimed a token for `price` wei, his `claims`-th of the collection. Follows the ERC-721 `Transfer`.
    event Claimed(
        uint256 indexed collectionId,
        address indexed user,
        uint256 indexed tokenId,
        uint256 price,
        uint256 claims,
        bytes32 ref
    );

    /// @notice `amount` charges of a token were redeemed for its holder; `remaining` are left.
    event ChargeRedeemed(
        uint256 indexed tokenId, address indexed holder, bytes32 indexed ref, uint256 amount, uint256 remaining
    );

    /// @notice No collection has this id.
    error UnknownCollection(uint256 id);

    /// @notice The collection's tokens cannot be claimed now.
    error CollectionInactive(uint256 id);

    /// @notice There are as many tokens as the collection may have.
    error SoldOut(uint256 id);

    /// @notice The collection may not have fewer tokens than there are.
    error SupplyBelowMinted(uint256 id, uint256 minted);

    /// @notice The price is `price` wei, more than the user would pay.
    error PriceAboveMax(uint256 price, uint256 maxPrice);

    /// @notice The user has claimed `currentClaims` times, and may not more often.
    error ClaimLimitReached(uint256 collectionId, uint256 currentClaims, uint256 maxPerUser);

    /// @notice The user has claimed `actual` times: most likely this claim has been made.
    error ClaimCountMismatch(uint256 expected, uint256 actual);

    /// @notice The collection's tokens are not claimed by the relay's word alone.
    error SignatureRequired(uint256 id);

    /// @notice The caller is neither the collection's brand nor a registrar.
    error NotBrand(uint256 id, address caller);

    /// @notice A collection needs a brand.
    error BadBrand(address brand);

    /// @notice LTZ sent to this address would be lost.
    error BadPayout(address payout);

    /// @notice The token belongs to `holder` now.
    error HolderChanged(uint256 tokenId, address holder);

    /// @notice `actual` charges are left: most likely this redemption has been made.
    error ChargesMismatch(uint256 tokenId, uint256 expected, uint256 actual);

    /// @notice Only `remaining` charges are left.
    error InsufficientCharges(uint256 tokenId, uint256 remaining);

    /// @notice A redemption of no charge, which could be sent again and again.
    error ZeroAmount();

    /// @notice Create a collection.
    /// @dev Only REGISTRAR_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `BadBrand` or `BadPayout`.
    /// @param p See {CollectionParams}; the price in wei.
    /// @param uri Of its tokens' metadata. If it ends with a slash, each token's id follows; else all tokens share it.
    /// @return id The collection's id.
    function createCollection(CollectionParams calldata p, string calldata uri) external returns (uint256 id);

    /// @notice Change what may change of a collection. Lower limits undo no claim.
    /// @dev Only the collection's brand or REGISTRAR_ROLE. Reverts with `UnknownCollection`, `NotBrand` or
    /// `SupplyBelowMinted`.
    /// @param id The collection.
    /// @param price In wei of LTZ.
    /// @param maxSupply Not below what was minted. Zero: 2^32 - 1.
    /// @param maxPerUser Zero: 65,535.
    /// @param active Whether tokens can be claimed.
    function updateCollection(uint256 id, uint96 price, uint32 maxSupply, uint16 maxPerUser, bool active) external;

    /// @notice Send the price of future claims elsewhere.
    /// @dev Only REGISTRAR_ROLE: a stolen brand key must not redirect money. Reverts with
    /// `AccessControlUnauthorizedAccount`, `UnknownCollection` or `BadPayout`.
    /// @param id The collection.
    /// @param payout Neither zero, nor PerkNFT itself, nor LTZ.
    function setPayout(uint256 id, address payout) external;

    /// @notice Give a collection to another brand: when the key of its brand is stolen or lost.
    /// @dev Only REGISTRAR_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `UnknownCollection` or `BadBrand`. Tokens,
    /// charges, limits and payout stay as they are.
    /// @param id The collection.
    /// @param brand Not zero.
    function setBrand(uint256 id, address brand) external;

    /// @notice Claim a token for a user, who pays with his LTZ allowance.
    /// @dev Only RELAYER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `UnknownCollection`, `SignatureRequired`,
    /// `ClaimCountMismatch`, `CollectionInactive`, `PriceAboveMax`, `ClaimLimitReached`, `SoldOut`, LTZ's
    /// `ERC20InsufficientAllowance` or `ERC20InsufficientBalance`, or `ERC721InvalidReceiver` for the zero address.
    /// @param user Who pays and receives.
    /// @param id The collection.
    /// @param maxPrice In wei; what the user would pay at most.
    /// @param expectedClaims How often the user has claimed before, so that the same claim is not made twice.
    /// @param ref Comes back in `Claimed`, of no meaning here.
    /// @return tokenId The new token.
    function claimFor(address user, uint256 id, uint256 maxPrice, uint256 expectedClaims, bytes32 ref)
        external
        returns (uint256 tokenId);

    /// @notice Claim a token for a user who signed
    /// `Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,uint256 deadline)`.
    /// @dev Anyone. Reverts like {claimFor} but for role and `SignatureRequired`, and with `SignatureExpired` or
    /// `InvalidSignature`. A signature works once, because claims are counted and never uncounted.
    /// @param user Who signed, pays and receives.
    /// @param id The collection.
    /// @param maxPrice In wei.
    /// @param expectedClaims How often the user has claimed before.
    /// @param ref Comes back in `Claimed`.
    /// @param deadline The last second in which the signature counts.
    /// @param sig 65 bytes.
    /// @return tokenId The new token.
    function claimWithSig(
        address user,
        uint256 id,
        uint256 maxPrice,
        uint256 expectedClaims,
        bytes32 ref,
        uint256 deadline,
        bytes calldata sig
    ) external returns (uint256 tokenId);

    /// @notice Claim a token for oneself, for one's own gas.
    /// @dev Anyone. Reverts with `UnknownCollection`, `CollectionInactive`, `PriceAboveMax`, `ClaimLimitReached`,
    /// `SoldOut`, or LTZ's `ERC20InsufficientAllowance` or `ERC20InsufficientBalance`.
    /// @param id The collection.
    /// @param maxPrice In wei.
    /// @param ref Comes back in `Claimed`.
    /// @return tokenId The new token.
    function claim(uint256 id, uint256 maxPrice, bytes32 ref) external returns (uint256 tokenId);

    /// @notice Redeem charges of a token for the one who holds it.
    /// @dev Only REDEEMER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `ERC721NonexistentToken`,
    /// `HolderChanged`, `ChargesMismatch`, `ZeroAmount` or `InsufficientCharges`.
    /// @param tokenId The token.
    /// @param holder For whom; must hold it.
    /// @param amount In charges, more than zero.
    /// @param expectedRemaining How many are left before, so that the same redemption is not made twice.
    /// @param ref Comes back in `ChargeRedeemed`, of no meaning here.
    /// @return remaining How many are left.
    function redeemCharge(uint256 tokenId, address holder, uint256 amount, uint256 expectedRemaining, bytes32 ref)
        external
        returns (uint256 remaining);

    /// @notice A token's charges.
    /// @dev Anyone. Reverts with `ERC721NonexistentToken`.
    /// @return remaining How many are left.
    /// @return total How many it came with.
    function chargesOf(uint256 tokenId) external view returns (uint256 remaining, uint256 total);

    /// @notice How often a user has claimed of a collection.
    /// @dev Anyone. Never reverts.
    function claimsOf(address user, uint256 id) external view returns (uint256);

    /// @notice A collection.
    /// @dev Anyone. Reverts with `UnknownCollection`.
    function collection(uint256 id) external view returns (CollectionInfo memory);

    /// @notice How many collections there are; the newest id.
    /// @dev Anyone. Never reverts.
    function collectionCount() external view returns (uint256);
}
