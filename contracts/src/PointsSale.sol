// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {IPointsSale} from "./IPointsSale.sol";
import {LTZ} from "./LTZ.sol";
import {Relayed} from "./Relayed.sol";

/// @title Items for LTZ
/// @notice See {IPointsSale}. Holds no LTZ: what is paid goes from the buyer to the payout, or is burned.
contract PointsSale is IPointsSale, Relayed {
    using SafeERC20 for LTZ;

    /// @notice May set items. A cold key.
    bytes32 public constant REGISTRAR_ROLE = keccak256("REGISTRAR_ROLE");

    bytes32 private constant BUY_TYPEHASH =
        keccak256("Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,uint256 deadline)");

    /// @dev Two slots. `brand` is zero only where there is no item.
    struct Listing {
        address payout;
        uint96 price;
        address brand;
        uint32 stock;
        uint32 sold;
        uint16 maxPerOrder;
        bool active;
        bool burns;
    }

    mapping(uint256 itemId => Listing listing) private _listings;
    /// @dev A bit for each reference, by its last byte. By buyer: nobody uses up another's reference.
    mapping(address buyer => mapping(uint256 word => uint256 bits)) private _orders;

    /// @param ltz_ The deployed LTZ.
    /// @param admin Holds DEFAULT_ADMIN_ROLE: grants and revokes roles.
    /// @param adminDelay Seconds between the proposal of a new admin and its earliest acceptance.
    constructor(LTZ ltz_, address admin, uint48 adminDelay)
        EIP712("PointsSale", "1")
        Relayed(ltz_, admin, adminDelay)
    {}

    /// @inheritdoc IPointsSale
    function setItem(uint256 itemId, address brand, Item calldata item_, bytes32 metadata)
        external
        onlyRole(REGISTRAR_ROLE)
    {
        if (brand == address(0)) revert BadBrand(brand);
        if (!item_.burns && _losesLTZ(item_.payout)) revert BadPayout(item_.payout);
        uint32 sold = _listings[itemId].sold;
        if (item_.stock < sold) revert StockBelowSold(itemId, sold);
        Listing memory listing = Listing({
            payout: item_.payout,
            price: item_.price,
            brand: brand,
            stock: item_.stock,
            sold: sold,
            maxPerOrder: item_.maxPerOrder,
            active: item_.active,
            burns: item_.burns
        });
        _listings[itemId] = listing;
        emit ItemSet(itemId, brand, _itemOf(listing), metadata);
    }

    /// @inheritdoc IPointsSale
    function buyFor(address buyer, uint256 itemId, uint256 quantity, uint256 maxTotal, bytes32 ref)
        external
        onlyRole(RELAYER_ROLE)
        returns (uint256 paid)
    {
        return _buy(buyer, itemId, quantity, maxTotal, ref);
    }

    /// @inheritdoc IPointsSale
    function buyWithSig(
        address buyer,
        uint256 itemId,
        uint256 quantity,
        uint256 maxTotal,
        bytes32 ref,
        uint256 deadline,
        bytes calldata sig
    ) external returns (uint256 paid) {
        bytes32 signed = keccak256(abi.encode(BUY_TYPEHASH, buyer, itemId, quantity, maxTotal, ref, deadline));
        _requireSigned(buyer, signed, deadline, sig);
        return _buy(buyer, itemId, quantity, maxTotal, ref);
    }

    /// @inheritdoc IPointsSale
    function item(uint256 itemId) external view returns (Item memory found, address brand) {
        Listing memory listing = _existing(itemId);
        return (_itemOf(listing), listing.brand);
    }

    /// @inheritdoc IPointsSale
    function isOrderPlaced(address buyer, bytes32 ref) external view returns (bool) {
        (uint256 word, uint256 bit) = _place(ref);
        return _orders[buyer][word] & bit != 0;
    }

    /// @notice ERC-165: of this contract, {IRelayed} and access control.
    /// @dev Anyone. Never reverts.
    function supportsInterface(bytes4 interfaceId) public view override returns (bool) {
        return interfaceId == type(IPointsSale).interfaceId || super.supportsInterface(interfaceId);
    }

    /// @dev Everything is written before LTZ is called.
    function _buy(address buyer, uint256 itemId, uint256 quantity, uint256 maxTotal, bytes32 ref)
        private
        returns (uint256 paid)
    {
        Listing memory listing = _existing(itemId);
        if (!listing.active) revert ItemInactive(itemId);
        _placeOrder(buyer, ref);
        _takeFromStock(itemId, listing, quantity);
        // At most 2^32 of at most 2^96: no overflow.
        paid = quantity * listing.price;
        if (paid > maxTotal) revert TotalAboveMax(paid, maxTotal);
        emit Purchased(itemId, buyer, ref, quantity, paid);
        if (paid == 0) return paid;
        if (listing.burns) ltz.burnFrom(buyer, paid);
        else ltz.safeTransferFrom(buyer, listing.payout, paid);
    }

    function _placeOrder(address buyer, bytes32 ref) private {
        (uint256 word, uint256 bit) = _place(ref);
        uint256 bits = _orders[buyer][word];
        if (bits & bit != 0) revert OrderAlreadyPlaced(ref);
        _orders[buyer][word] = bits | bit;
    }

    function _takeFromStock(uint256 itemId, Listing memory listing, uint256 quantity) private {
        uint256 most = listing.maxPerOrder == 0 ? type(uint32).max : listing.maxPerOrder;
        if (quantity == 0 || quantity > most) revert BadQuantity(quantity, most);
        uint256 left = listing.stock - listing.sold;
        if (quantity > left) revert OutOfStock(itemId, left);
        // At most the stock, which is a uint32.
        // forge-lint: disable-next-line(unsafe-typecast)
        _listings[itemId].sold = listing.sold + uint32(quantity);
    }

    function _existing(uint256 itemId) private view returns (Listing memory listing) {
        listing = _listings[itemId];
        if (listing.brand == address(0)) revert UnknownItem(itemId);
    }

    function _itemOf(Listing memory listing) private pure returns (Item memory) {
        return Item({
            payout: listing.payout,
            price: listing.price,
            stock: listing.stock,
            sold: listing.sold,
            maxPerOrder: listing.maxPerOrder,
            active: listing.active,
            burns: listing.burns
        });
    }

    /// @dev All 256 bits of the reference have their place, so that no two share one.
    function _place(bytes32 ref) private pure returns (uint256 word, uint256 bit) {
        // The lint expects a constant to be shifted by nothing but a constant.
        // forge-lint: disable-next-line(incorrect-shift)
        return (uint256(ref) >> 8, 1 << (uint256(ref) & 0xff));
    }
}
