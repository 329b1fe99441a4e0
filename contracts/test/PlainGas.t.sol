// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAccessControl} from "@openzeppelin/contracts/access/IAccessControl.sol";

import {OPERATOR_ROLE, PlainEscrow, PlainPerks, PlainSale, PlainToken} from "./support/Plain.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice What the same operations cost when written plainly on OpenZeppelin, in the same steady state as ours: payouts
/// have been paid, users have claimed and signed before, allowances are exact.
/// forge-config: default.isolate = true
contract PlainGas is RelayedSpec {
    uint96 private constant PRICE = 5 ether;
    uint256 private constant AMOUNT = 40 ether;
    uint256 private constant FIRST = 1;
    uint256 private constant SECOND = 2;
    bytes32 private constant REF = keccak256("a reference");
    bytes32 private constant NEXT_REF = keccak256("the next reference");
    bytes32 private constant NONCE = keccak256("a random nonce");

    PlainToken private token;
    PlainPerks private perks;
    PlainSale private sale;
    PlainEscrow private escrow;

    function setUp() public override {
        super.setUp();
        token = new PlainToken();
        operated(token);
        perks = new PlainPerks(ltz);
        operated(perks);
        PlainPerks.Collection memory c = PlainPerks.Collection(PAYOUT, PRICE, 100, 0, 2, 10, true);
        perks.create(FIRST, c);
        perks.create(SECOND, c);
        sale = new PlainSale(ltz);
        operated(sale);
        sale.setItem(FIRST, PlainSale.Item(PAYOUT, PRICE, 100, 10, true));
        escrow = new PlainEscrow(ltz);
        operated(escrow);
        escrow.approve(bob);
        usePermit(0);
        allow(ann, address(perks), 0);
        claim(bob, FIRST);
        claim(bob, SECOND);
        buy(bob, REF);
        lock(keccak256("another"));
    }

    function operated(IAccessControl target) private {
        target.grantRole(OPERATOR_ROLE, RELAYER);
    }

    function record(string memory what) private {
        vm.snapshotGasLastCall("Plain", what);
    }

    function mintPlain(address to, bytes32 ref) private {
        vm.prank(RELAYER);
        token.mintReward(to, AMOUNT, ref);
    }

    function claim(address user, uint256 id) private {
        allow(user, address(perks), PRICE);
        vm.prank(RELAYER);
        perks.claimFor(user, id, PRICE, REF);
    }

    function buy(address user, bytes32 ref) private {
        allow(user, address(sale), PRICE);
        vm.prank(RELAYER);
        sale.buyFor(user, FIRST, 1, PRICE, ref);
    }

    function lock(bytes32 id) private {
        allow(ann, address(escrow), AMOUNT);
        vm.prank(RELAYER);
        escrow.lockFor(ann, bob, AMOUNT, block.timestamp + 7 days, id);
    }

    function usePermit(uint256 nonce) private {
        Permit memory given = Permit(ann, address(perks), PRICE, nonce, block.timestamp);
        Signature memory s = signPermit(ANN_KEY, ltz, given);
        vm.prank(RELAYER);
        ltz.permit(ann, address(perks), PRICE, given.deadline, s.v, s.r, s.s);
    }

    function test_a_mint_to_a_new_and_an_existing_holder() public {
        mintPlain(STRANGER, refOf(1));
        mintPlain(ann, refOf(2));
        record("mint, new holder");
        mintPlain(ann, refOf(3));
        record("mint, existing holder");
    }

    function test_a_relayed_transfer_to_a_new_and_an_existing_holder() public {
        mintPlain(ann, refOf(1));
        for (uint256 i = 0; i < 2; ++i) {
            Payment memory paid = Payment(ann, bob, 1 ether, 0, block.timestamp + 1 hours, NONCE ^ bytes32(i));
            Signature memory s = signPlainPayment(paid);
            vm.prank(RELAYER);
            token.transferWithAuthorization(
                paid.from, paid.to, paid.value, paid.validAfter, paid.validBefore, paid.nonce, s.v, s.r, s.s
            );
            record(i == 0 ? "transferWithAuthorization, new holder" : "transferWithAuthorization, existing holder");
        }
    }

    function signPlainPayment(Payment memory paid) private view returns (Signature memory s) {
        bytes32 typeHash = keccak256(
            "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
        );
        bytes memory sig = signFor(ANN_KEY, "Plain", address(token), keccak256(abi.encode(typeHash, paid)));
        assembly ("memory-safe") {
            mstore(s, byte(0, mload(add(sig, 96))))
            mstore(add(s, 32), mload(add(sig, 32)))
            mstore(add(s, 64), mload(add(sig, 64)))
        }
    }

    function test_a_first_and_a_later_claim() public {
        claim(ann, FIRST);
        record("claimFor, a user's first");
        claim(ann, SECOND);
        record("claimFor, later");
    }

    function test_a_permit() public {
        usePermit(1);
        record("permit");
    }

    function test_a_signed_claim() public {
        signedClaim(FIRST, 0);
        signedClaim(SECOND, 1);
        record("claimWithSig, later");
    }

    function signedClaim(uint256 id, uint256 nonce) private {
        allow(ann, address(perks), PRICE);
        bytes32 typeHash =
            keccak256("Claim(address user,uint256 id,uint256 maxPrice,bytes32 ref,uint256 nonce,uint256 deadline)");
        bytes32 structHash = keccak256(abi.encode(typeHash, ann, id, PRICE, REF, nonce, block.timestamp));
        bytes memory sig = signFor(ANN_KEY, "Plain", address(perks), structHash);
        vm.prank(STRANGER);
        perks.claimWithSig(ann, id, PRICE, REF, block.timestamp, sig);
    }

    function test_a_redemption() public {
        vm.prank(RELAYER);
        perks.redeem(1, bob, 1, REF);
        record("redeem");
    }

    function test_an_order() public {
        buy(ann, NEXT_REF);
        record("buyFor");
    }

    function test_a_lock_and_a_release() public {
        lock(REF);
        record("lockFor");
        vm.prank(ann);
        escrow.release(REF);
        record("release");
    }
}
