// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";

import {IRelayed} from "../../src/IRelayed.sol";
import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice What each `WithSig` function must do. A suite inherits this and names its function and what is signed.
abstract contract SignedCallBehaviour is RelayedSpec {
    event Signed(address target);

    /// @dev Group order of secp256k1.
    uint256 private constant ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    /// @dev Published domain name and address of the contract.
    function verifier() internal view virtual returns (string memory name, address target);

    function signerKey() internal pure virtual returns (uint256);

    /// @dev EIP-712 struct hash of what the signer agrees to.
    function signedStruct(uint256 deadline) internal view virtual returns (bytes32);

    function signedCall(uint256 deadline, bytes memory sig) internal view virtual returns (bytes memory);

    /// @dev With what a second use must be refused.
    function replayReason() internal view virtual returns (bytes memory);

    /// @dev Fails unless what was signed has happened, once.
    function requireDone() internal view virtual;

    function goodSignature(uint256 deadline) internal view returns (bytes memory) {
        (string memory name, address target) = verifier();
        return signFor(signerKey(), name, target, signedStruct(deadline));
    }

    function submit(uint256 deadline, bytes memory sig) internal {
        (, address target) = verifier();
        send(STRANGER, target, signedCall(deadline, sig));
    }

    function expectInvalid() internal {
        vm.expectRevert(IRelayed.InvalidSignature.selector);
    }

    function submitSignedIn(bytes32 domainHash) private {
        bytes memory sig = signIn(signerKey(), domainHash, signedStruct(block.timestamp));
        expectInvalid();
        submit(block.timestamp, sig);
    }

    function test_anyone_may_bring_a_signature_up_to_its_last_second() public {
        bytes memory sig = goodSignature(block.timestamp);
        submit(block.timestamp, sig);
        requireDone();
    }

    function test_a_signature_late_by_a_second_is_refused() public {
        uint256 deadline = block.timestamp;
        bytes memory sig = goodSignature(deadline);
        vm.warp(deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IRelayed.SignatureExpired.selector, deadline));
        submit(deadline, sig);
    }

    function test_a_deadline_is_signed_too() public {
        bytes memory sig = goodSignature(block.timestamp);
        expectInvalid();
        submit(block.timestamp + 1, sig);
    }

    function test_a_signature_works_once() public {
        uint256 deadline = block.timestamp + 1 days;
        bytes memory sig = goodSignature(deadline);
        submit(deadline, sig);
        vm.expectRevert(replayReason());
        submit(deadline, sig);
        requireDone();
    }

    function test_a_signature_by_another_is_refused() public {
        (string memory name, address target) = verifier();
        bytes memory sig = signFor(0xBAD, name, target, signedStruct(block.timestamp));
        expectInvalid();
        submit(block.timestamp, sig);
    }

    function test_the_operator_cannot_sign_instead() public {
        (string memory name, address target) = verifier();
        bytes memory sig = signFor(0xBAD, name, target, signedStruct(block.timestamp));
        expectInvalid();
        send(RELAYER, target, signedCall(block.timestamp, sig));
    }

    function test_the_malleable_twin_of_a_signature_is_refused() public {
        bytes memory sig = goodSignature(block.timestamp);
        bytes32 s;
        assembly ("memory-safe") {
            s := mload(add(sig, 64))
        }
        s = bytes32(ORDER - uint256(s));
        assembly ("memory-safe") {
            mstore(add(sig, 64), s)
        }
        sig[64] = sig[64] == bytes1(uint8(27)) ? bytes1(uint8(28)) : bytes1(uint8(27));
        expectInvalid();
        submit(block.timestamp, sig);
    }

    function test_a_signature_of_another_length_is_refused() public {
        bytes memory sig = goodSignature(block.timestamp);
        bytes memory longer = abi.encodePacked(sig, uint8(0));
        bytes[3] memory wrong = [bytes(""), longer, new bytes(64)];
        for (uint256 i = 0; i < wrong.length; ++i) {
            expectInvalid();
            submit(block.timestamp, wrong[i]);
        }
        expectInvalid();
        submit(block.timestamp, new bytes(65));
    }

    function test_a_signature_for_another_chain_is_refused() public {
        (string memory name, address target) = verifier();
        submitSignedIn(domain(name, "1", block.chainid + 1, target));
    }

    function test_a_signature_from_before_the_chain_split_is_refused() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.chainId(block.chainid + 1);
        expectInvalid();
        submit(block.timestamp, sig);
    }

    function test_a_signature_for_another_contract_is_refused() public {
        (string memory name, address target) = verifier();
        submitSignedIn(domain(name, "1", block.chainid, address(ltz)));
        submitSignedIn(domain("Loyalty Token", "1", block.chainid, target));
        submitSignedIn(domain(name, "2", block.chainid, target));
    }

    function testFuzz_any_other_signature_is_refused(bytes32 r, bytes32 s, uint8 v) public {
        bytes memory random = abi.encodePacked(r, s, v);
        vm.assume(keccak256(random) != keccak256(goodSignature(block.timestamp)));
        expectInvalid();
        submit(block.timestamp, random);
    }

    function testFuzz_one_flipped_bit_is_refused(uint256 place) public {
        bytes memory sig = goodSignature(block.timestamp);
        place %= 65 * 8;
        sig[place / 8] ^= bytes1(uint8(1 << (place % 8)));
        expectInvalid();
        submit(block.timestamp, sig);
    }
}

/// @notice A contract account that says yes to every signature. Nobody must ask it.
contract YesSayer is IERC1271 {
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return IERC1271.isValidSignature.selector;
    }
}
