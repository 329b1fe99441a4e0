// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";
import {IERC721Metadata} from "@openzeppelin/contracts/token/ERC721/extensions/IERC721Metadata.sol";

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {LTZ} from "../src/LTZ.sol";
import {PerkNFT} from "../src/PerkNFT.sol";
import {Relayed} from "../src/Relayed.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";
import {RelayedBehaviour} from "./support/RelayedBehaviour.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice PerkNFT's roles, permits and multicalls.
contract PerkNFTRelayed is PerkNFTSpec, RelayedBehaviour {
    function setUp() public override(PerkNFTSpec, RelayedSpec) {
        super.setUp();
    }

    function relayed() internal view override returns (Relayed) {
        return perks;
    }

    function deploy(LTZ token, address admin) internal override returns (Relayed) {
        return new PerkNFT(token, admin, ADMIN_DELAY);
    }

    function ownInterface() internal pure override returns (bytes4) {
        return type(IPerkNFT).interfaceId;
    }

    function hotRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](2);
        (roles[0], roles[1]) = (RELAYER_ROLE, REDEEMER_ROLE);
    }

    function coldRoles() internal pure override returns (bytes32[] memory roles) {
        roles = new bytes32[](2);
        (roles[0], roles[1]) = (REGISTRAR_ROLE, GUARDIAN_ROLE);
    }

    function payingCall() internal view override returns (bytes memory) {
        return abi.encodeCall(IPerkNFT.claimFor, (ann, PRICED, PRICE, 0, REF));
    }

    function test_its_own_roles_are_the_hashes_of_their_names() public view {
        vm.assertEq(perks.REGISTRAR_ROLE(), REGISTRAR_ROLE);
        vm.assertEq(perks.REDEEMER_ROLE(), REDEEMER_ROLE);
    }

    function test_it_is_an_erc_721_with_metadata() public view {
        vm.assertEq(perks.name(), "Loyalty Perks");
        vm.assertEq(perks.symbol(), "PERK");
        vm.assertTrue(perks.supportsInterface(type(IERC721).interfaceId));
        vm.assertTrue(perks.supportsInterface(type(IERC721Metadata).interfaceId));
    }

    function test_the_domain_is_the_published_one() public view {
        (, string memory name, string memory version, uint256 chainId, address target,,) = perks.eip712Domain();
        vm.assertEq(name, "PerkNFT");
        vm.assertEq(version, "1");
        vm.assertEq(chainId, block.chainid);
        vm.assertEq(target, address(perks));
    }

    function test_a_multicall_returns_what_its_calls_return() public {
        allow(ann, address(perks), PRICE);
        bytes[] memory calls = new bytes[](1);
        calls[0] = payingCall();
        vm.prank(RELAYER);
        bytes[] memory results = perks.multicall(calls);
        vm.assertEq(abi.decode(results[0], (uint256)), tokenOf(PRICED, 1));
    }

    function test_a_stolen_relay_key_moves_no_token_and_redirects_no_payout() public {
        claimFor(ann, FREE, 0);
        bytes memory refused =
            abi.encodeWithSignature("ERC721InsufficientApproval(address,uint256)", RELAYER, tokenOf(FREE, 1));
        vm.expectRevert(refused);
        vm.prank(RELAYER);
        perks.transferFrom(ann, RELAYER, tokenOf(FREE, 1));
        expectMissingRole(RELAYER, REGISTRAR_ROLE);
        vm.prank(RELAYER);
        perks.setPayout(PRICED, RELAYER);
        expectMissingRole(RELAYER, REDEEMER_ROLE);
        vm.prank(RELAYER);
        perks.redeemCharge(tokenOf(FREE, 1), ann, 1, 3, REF);
    }
}
