// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Items for LTZ
/// @notice Registrars put items up for sale; users buy them by order. What is bought is delivered elsewhere: the chain
/// keeps who paid what for which order.
///
/// Amounts are in wei of LTZ (10^-18 LTZ). PointsSale is an {IRelayed} too.
interface IPointsSale {
    /// @param payout Receives what is paid. Neither zero, nor PointsSale itself, nor LTZ, unless the item burns.
    /// @param price Of one, in wei of LTZ. Zero: free.
    /// @param stock How many are for sale in all, those sold included.
    /// @param sold How many were sold.
    /// @param maxPerOrder How many at once. Zero: as many as there are.
    /// @param active Whether it can be bought.
    /// @param burns Whether what is paid is burned, and the payout gets nothing.
    struct Item {
        address payout;
        uint96 price;
        uint32 stock;
        uint32 sold;
        uint16 maxPerOrder;
        bool active;
        bool burns;
    }

    /// @notice An item is now this.
    /// @param metadata The hash of its description, or whatever the registrar gives; of no meaning here.
    event ItemSet(uint256 indexed itemId, address indexed brand, Item item, bytes32 metadata);

    /// @notice `buyer` bought `quantity` of an item for `paid` wei in all. Buyer and reference name the order.
    event Purchased(uint256 indexed itemId, address indexed buyer, bytes32 indexed ref, uint256 quantity, uint256 paid);

    /// @notice No item has this id.
    error UnknownItem(uint256 id);

    /// @notice The item cannot be bought now.
    error ItemInactive(uint256 id);

    /// @notice Only `left` of the item are left.
    error OutOfStock(uint256 id, uint256 left);

    /// @notice The stock may not be below what was sold.
    error StockBelowSold(uint256 id, uint256 sold);

    /// @notice An order is for one up to `max`.
    error BadQuantity(uint256 quantity, uint256 max);

    /// @notice The order costs `total` wei, more than the buyer would pay.
    error TotalAboveMax(uint256 total, uint256 maxTotal);

    /// @notice The buyer has placed an order under this reference: most likely this one.
    error OrderAlreadyPlaced(bytes32 ref);

    /// @notice An item needs a brand.
    error BadBrand(address brand);

    /// @notice LTZ sent to this address would be lost.
    error BadPayout(address payout);

    /// @notice Put an item up for sale, or change one. What was sold stays sold.
    /// @dev Only REGISTRAR_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `BadBrand`, `BadPayout` or
    /// `StockBelowSold`.
    /// @param itemId Chosen by the registrar.
    /// @param brand Whose item it is; may not change it. Not zero.
    /// @param item_ See {Item}; the price in wei. Its `sold` is not read.
    /// @param metadata Comes back in `ItemSet`.
    function setItem(uint256 itemId, address brand, Item calldata item_, bytes32 metadata) external;

    /// @notice Buy for a user, who pays with his LTZ allowance.
    /// @dev Only RELAYER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `UnknownItem`, `ItemInactive`,
    /// `OrderAlreadyPlaced`, `BadQuantity`, `OutOfStock`, `TotalAboveMax`, or LTZ's `ERC20InsufficientAllowance` or
    /// `ERC20InsufficientBalance`.
    /// @param buyer Who pays.
    /// @param itemId The item.
    /// @param quantity How many, at least one.
    /// @param maxTotal In wei; what the buyer would pay at most for all of them.
    /// @param ref Unused among the buyer's orders. References that differ in the last byte only share a storage slot.
    /// @return paid In wei.
    function buyFor(address buyer, uint256 itemId, uint256 quantity, uint256 maxTotal, bytes32 ref)
        external
        returns (uint256 paid);

    /// @notice Buy for a user who signed
    /// `Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,uint256 deadline)`.
    /// @dev Anyone. Reverts like {buyFor} but for the role, and with `SignatureExpired` or `InvalidSignature`. A signature
    /// works once, because a reference does.
    /// @param buyer Who signed and pays.
    /// @param itemId The item.
    /// @param quantity How many, at least one.
    /// @param maxTotal In wei.
    /// @param ref Unused among the buyer's orders.
    /// @param deadline The last second in which the signature counts.
    /// @param sig 65 bytes.
    /// @return paid In wei.
    function buyWithSig(
        address buyer,
        uint256 itemId,
        uint256 quantity,
        uint256 maxTotal,
        bytes32 ref,
        uint256 deadline,
        bytes calldata sig
    ) external returns (uint256 paid);

    /// @notice An item and whose it is.
    /// @dev Anyone. Reverts with `UnknownItem`.
    function item(uint256 itemId) external view returns (Item memory found, address brand);

    /// @notice Whether the buyer has placed an order under this reference.
    /// @dev Anyone. Never reverts.
    function isOrderPlaced(address buyer, bytes32 ref) external view returns (bool);
}
