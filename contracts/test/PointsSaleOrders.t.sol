// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../src/IPointsSale.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";

/// @notice Buying: who pays whom, how many, once.
contract PointsSaleOrders is PointsSaleSpec {
    function setUp() public override {
        super.setUp();
        allow(ann, address(sale), FUNDS);
        allow(bob, address(sale), FUNDS);
    }

    function expectBadQuantity(uint256 quantity, uint256 most) private {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.BadQuantity.selector, quantity, most));
    }

    function expectOutOfStock(uint256 left) private {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.OutOfStock.selector, MUG, left));
    }

    function expectPlaced(bytes32 ref) private {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.OrderAlreadyPlaced.selector, ref));
    }

    function test_an_order_pays_the_payout_takes_from_the_stock_and_says_so() public {
        vm.expectEmit(address(sale));
        emit Purchased(MUG, ann, REF, 3, 3 * PRICE);
        vm.assertEq(buy(ann, MUG, 3, REF), 3 * PRICE);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - 3 * PRICE);
        vm.assertEq(ltz.balanceOf(PAYOUT), 3 * PRICE);
        vm.assertEq(ltz.balanceOf(address(sale)), 0);
        vm.assertEq(ltz.allowance(ann, address(sale)), FUNDS - 3 * PRICE);
        vm.assertEq(itemOf(MUG).sold, 3);
        vm.assertTrue(sale.isOrderPlaced(ann, REF));
        buy(bob, MUG, 2, REF);
        vm.assertEq(itemOf(MUG).sold, 5);
        vm.assertEq(itemOf(TREE).sold, 0);
    }

    function test_an_item_may_burn_what_is_paid() public {
        uint256 supply = ltz.totalSupply();
        vm.expectEmit(address(sale));
        emit Purchased(TREE, ann, REF, 2, 2 * PRICE);
        vm.expectEmit(address(ltz));
        emit Transfer(ann, address(0), 2 * PRICE);
        vm.assertEq(buy(ann, TREE, 2, REF), 2 * PRICE);
        vm.assertEq(ltz.totalSupply(), supply - 2 * PRICE);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - 2 * PRICE);
        vm.assertEq(ltz.balanceOf(address(0)), 0);
    }

    function test_burning_without_an_allowance_is_refused() public {
        allow(ann, address(sale), PRICE - 1);
        vm.expectRevert(
            abi.encodeWithSignature(
                "ERC20InsufficientAllowance(address,uint256,uint256)", address(sale), PRICE - 1, PRICE
            )
        );
        buy(ann, TREE, 1, REF);
        vm.assertFalse(sale.isOrderPlaced(ann, REF));
        vm.assertEq(itemOf(TREE).sold, 0);
    }

    function test_a_free_item_needs_no_ltz() public {
        allow(ann, address(sale), 0);
        IPointsSale.Item memory gift = mug();
        gift.price = 0;
        setItem(MUG, gift);
        vm.assertEq(buy(ann, MUG, 1, REF), 0);
        vm.assertEq(ltz.balanceOf(ann), FUNDS);
        gift.burns = true;
        setItem(MUG, gift);
        vm.assertEq(buy(ann, MUG, 1, keccak256("another")), 0);
    }

    function test_an_order_is_placed_once() public {
        buy(ann, MUG, 1, REF);
        expectPlaced(REF);
        buy(ann, MUG, 1, REF);
        expectPlaced(REF);
        buy(ann, TREE, 2, REF);
        vm.assertEq(itemOf(MUG).sold, 1);
    }

    function test_references_are_each_buyers_own() public {
        buy(bob, MUG, 1, REF);
        vm.assertFalse(sale.isOrderPlaced(ann, REF));
        buy(ann, MUG, 1, REF);
        vm.assertTrue(sale.isOrderPlaced(ann, REF));
    }

    function testFuzz_a_reference_is_used_up_alone(bytes32 used, uint256 flipped) public {
        bytes32 other = used ^ bytes32(uint256(1) << (flipped % 256));
        buy(ann, MUG, 1, used);
        vm.assertFalse(sale.isOrderPlaced(ann, other));
        buy(ann, MUG, 1, other);
        vm.assertTrue(sale.isOrderPlaced(ann, used));
        vm.assertTrue(sale.isOrderPlaced(ann, other));
        expectPlaced(used);
        buy(ann, MUG, 1, used);
    }

    function test_an_order_is_for_one_up_to_the_most_an_order_may_hold() public {
        expectBadQuantity(0, 10);
        buy(ann, MUG, 0, REF);
        expectBadQuantity(11, 10);
        buy(ann, MUG, 11, REF);
        buy(ann, MUG, 10, REF);
    }

    function test_without_a_most_an_order_may_hold_the_whole_stock() public {
        IPointsSale.Item memory many = mug();
        (many.maxPerOrder, many.price) = (0, 1);
        many.stock = type(uint32).max;
        setItem(MUG, many);
        expectBadQuantity(0, type(uint32).max);
        buy(ann, MUG, 0, REF);
        expectBadQuantity(uint256(type(uint32).max) + 1, type(uint32).max);
        buy(ann, MUG, uint256(type(uint32).max) + 1, REF);
        vm.assertEq(buy(ann, MUG, type(uint32).max, REF), type(uint32).max);
        vm.assertEq(itemOf(MUG).sold, type(uint32).max);
        expectOutOfStock(0);
        buy(ann, MUG, 1, keccak256("another"));
    }

    function test_no_more_are_sold_than_there_are() public {
        IPointsSale.Item memory few = mug();
        few.stock = 3;
        setItem(MUG, few);
        buy(ann, MUG, 2, REF);
        expectOutOfStock(1);
        buy(bob, MUG, 2, REF);
        buy(bob, MUG, 1, REF);
        expectOutOfStock(0);
        buy(ann, MUG, 1, keccak256("another"));
        vm.assertEq(itemOf(MUG).sold, 3);
    }

    function test_an_item_without_stock_is_not_for_sale() public {
        IPointsSale.Item memory none = mug();
        none.stock = 0;
        setItem(MUG, none);
        expectOutOfStock(0);
        buy(ann, MUG, 1, REF);
    }

    function test_an_inactive_item_is_not_for_sale() public {
        IPointsSale.Item memory gone = mug();
        gone.active = false;
        setItem(MUG, gone);
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.ItemInactive.selector, MUG));
        buy(ann, MUG, 1, REF);
    }

    function test_nobody_pays_more_than_he_said() public {
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.TotalAboveMax.selector, 2 * PRICE, 2 * PRICE - 1));
        vm.prank(RELAYER);
        sale.buyFor(ann, MUG, 2, 2 * PRICE - 1, REF);
        IPointsSale.Item memory cheaper = mug();
        cheaper.price = PRICE - 1;
        setItem(MUG, cheaper);
        vm.expectEmit(address(sale));
        emit Purchased(MUG, ann, REF, 2, 2 * PRICE - 2);
        vm.assertEq(buy(ann, MUG, 2, REF), 2 * PRICE - 2);
        vm.assertEq(ltz.balanceOf(PAYOUT), 2 * PRICE - 2);
    }

    function test_no_more_is_burned_than_the_price() public {
        IPointsSale.Item memory cheaper = itemOf(TREE);
        cheaper.price = PRICE - 1;
        setItem(TREE, cheaper);
        vm.assertEq(buy(ann, TREE, 2, REF), 2 * PRICE - 2);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - 2 * PRICE + 2);
    }

    function test_the_dearest_order_there_can_be_overflows_nothing() public {
        IPointsSale.Item memory dear = mug();
        (dear.price, dear.stock, dear.maxPerOrder) = (type(uint96).max, type(uint32).max, 0);
        setItem(MUG, dear);
        uint256 total = uint256(type(uint96).max) * type(uint32).max;
        vm.expectRevert(abi.encodeWithSelector(IPointsSale.TotalAboveMax.selector, total, 0));
        vm.prank(RELAYER);
        sale.buyFor(ann, MUG, type(uint32).max, 0, REF);
    }

    function testFuzz_any_order_within_the_limits_is_paid_exactly(uint96 price, uint32 quantity) public {
        IPointsSale.Item memory any = mug();
        (any.price, any.maxPerOrder, any.stock) = (price % 1 ether, 0, type(uint32).max);
        setItem(MUG, any);
        quantity = uint32(between(quantity, 1, 1000));
        uint256 total = uint256(any.price) * quantity;
        vm.prank(RELAYER);
        vm.assertEq(sale.buyFor(ann, MUG, quantity, total, REF), total);
        vm.assertEq(ltz.balanceOf(PAYOUT), total);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - total);
        vm.assertEq(itemOf(MUG).sold, quantity);
    }
}
