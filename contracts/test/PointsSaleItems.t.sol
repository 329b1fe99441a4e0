// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../src/IPointsSale.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";

/// @notice Putting items up for sale and changing them.
contract PointsSaleItems is PointsSaleSpec {
    function expectUnknown(uint256 itemId) private {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.UnknownItem.selector, itemId));
    }

    function test_a_new_item_is_told_and_kept() public {
        IPointsSale.Item memory item =
            IPointsSale.Item({payout: bob, price: 1, stock: 2, sold: 0, maxPerOrder: 3, active: false, burns: true});
        vm.expectEmit(address(sale));
        emit ItemSet(1, BRAND, item, METADATA);
        setItem(1, item);
        requireItem(1, item);
        (, address brand) = sale.item(1);
        vm.assertEq(brand, BRAND);
        requireItem(MUG, mug());
    }

    function testFuzz_every_field_is_kept(uint256 itemId, address brand, IPointsSale.Item memory item) public {
        vm.assume(brand != address(0) && item.payout != address(0));
        vm.assume(item.payout != address(sale) && item.payout != address(ltz));
        vm.prank(REGISTRAR);
        sale.setItem(itemId, brand, item, METADATA);
        (IPointsSale.Item memory kept, address owner) = sale.item(itemId);
        item.sold = 0;
        vm.assertEq(abi.encode(kept), abi.encode(item), "item");
        vm.assertEq(owner, brand);
    }

    function test_only_a_registrar_sets_an_item() public {
        address[4] memory others = [ADMIN, BRAND, RELAYER, STRANGER];
        for (uint256 i = 0; i < others.length; ++i) {
            expectMissingRole(others[i], REGISTRAR_ROLE);
            vm.prank(others[i]);
            sale.setItem(MUG, others[i], mug(), METADATA);
        }
    }

    function test_an_item_needs_a_brand() public {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.BadBrand.selector, address(0)));
        vm.prank(REGISTRAR);
        sale.setItem(MUG, address(0), mug(), METADATA);
    }

    function test_a_payout_where_ltz_would_be_lost_is_refused_unless_it_burns() public {
        address[3] memory lost = [address(0), address(sale), address(ltz)];
        IPointsSale.Item memory item = mug();
        for (uint256 i = 0; i < lost.length; ++i) {
            item.payout = lost[i];
            item.burns = false;
            vm.expectRevert(abi.encodeWithSelector(IPointsSale.BadPayout.selector, lost[i]));
            setItem(MUG, item);
            item.burns = true;
            setItem(MUG, item);
        }
    }

    function test_a_registrar_gives_an_item_to_another_brand() public {
        vm.expectEmit(address(sale));
        emit ItemSet(MUG, bob, mug(), METADATA);
        vm.prank(REGISTRAR);
        sale.setItem(MUG, bob, mug(), METADATA);
        (, address brand) = sale.item(MUG);
        vm.assertEq(brand, bob);
    }

    function test_what_was_sold_stays_sold_whatever_is_set() public {
        allow(ann, address(sale), FUNDS);
        buy(ann, MUG, 4, REF);
        IPointsSale.Item memory changed = mug();
        (changed.price, changed.stock, changed.sold) = (1, 4, 4);
        uint32[3] memory given = [uint32(0), 4, 99];
        for (uint256 i = 0; i < given.length; ++i) {
            IPointsSale.Item memory wanted = mug();
            (wanted.price, wanted.stock, wanted.sold) = (1, 4, given[i]);
            vm.expectEmit(address(sale));
            emit ItemSet(MUG, BRAND, changed, METADATA);
            setItem(MUG, wanted);
            requireItem(MUG, changed);
        }
    }

    function test_a_stock_sinks_to_what_was_sold_and_no_lower() public {
        allow(ann, address(sale), FUNDS);
        buy(ann, MUG, 4, REF);
        IPointsSale.Item memory changed = mug();
        changed.stock = 4;
        setItem(MUG, changed);
        changed.stock = 3;
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.StockBelowSold.selector, MUG, 4));
        setItem(MUG, changed);
    }

    function test_an_unknown_item_is_named() public {
        expectUnknown(1);
        sale.item(1);
        expectUnknown(1);
        buy(ann, 1, 1, REF);
    }
}
