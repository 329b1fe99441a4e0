// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../../src/IPointsSale.sol";
import {PointsSale} from "../../src/PointsSale.sol";
import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice A deployed PointsSale with two items, and words to speak about it.
abstract contract PointsSaleSpec is RelayedSpec {
    event ItemSet(uint256 indexed itemId, address indexed brand, IPointsSale.Item item, bytes32 metadata);
    event Purchased(uint256 indexed itemId, address indexed buyer, bytes32 indexed ref, uint256 quantity, uint256 paid);

    uint256 internal constant MUG = 7;
    /// @dev Paid for by burning.
    uint256 internal constant TREE = 8;
    uint96 internal constant PRICE = 5 ether;
    bytes32 internal constant METADATA = keccak256("a description");
    bytes32 internal constant REF = keccak256("a reference");

    PointsSale internal sale;

    function setUp() public virtual override {
        super.setUp();
        sale = new PointsSale(ltz, ADMIN, ADMIN_DELAY);
        grantOn(address(sale), RELAYER_ROLE, RELAYER);
        grantOn(address(sale), GUARDIAN_ROLE, GUARDIAN);
        grantOn(address(sale), REGISTRAR_ROLE, REGISTRAR);
        setItem(MUG, mug());
        IPointsSale.Item memory tree = mug();
        (tree.burns, tree.payout) = (true, address(0));
        setItem(TREE, tree);
    }

    function mug() internal pure returns (IPointsSale.Item memory) {
        return IPointsSale.Item({
            payout: PAYOUT, price: PRICE, stock: 50, sold: 0, maxPerOrder: 10, active: true, burns: false
        });
    }

    function setItem(uint256 itemId, IPointsSale.Item memory item) internal {
        vm.prank(REGISTRAR);
        sale.setItem(itemId, BRAND, item, METADATA);
    }

    function buy(address buyer, uint256 itemId, uint256 quantity, bytes32 ref) internal returns (uint256) {
        vm.prank(RELAYER);
        return sale.buyFor(buyer, itemId, quantity, quantity * PRICE, ref);
    }

    function itemOf(uint256 itemId) internal view returns (IPointsSale.Item memory found) {
        (found,) = sale.item(itemId);
    }

    function requireItem(uint256 itemId, IPointsSale.Item memory expected) internal view {
        vm.assertEq(abi.encode(itemOf(itemId)), abi.encode(expected), "item");
    }
}
