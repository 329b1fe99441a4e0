// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AccessControl} from "@openzeppelin/contracts/access/AccessControl.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

// What one would write on OpenZeppelin without a thought for gas: a mapping for each thing, whole words, the usual
// guards. Each does what ours does for a user, so that the prices can stand side by side. Not deployed anywhere.

bytes32 constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");

contract PlainToken is ERC20Permit, ERC3009, AccessControl {
    mapping(bytes32 ref => bool) private _used;

    event RewardMinted(address indexed to, bytes32 indexed ref, uint256 amount);

    constructor() ERC20("Plain", "PLAIN") ERC20Permit("Plain") {
        _grantRole(DEFAULT_ADMIN_ROLE, _msgSender());
    }

    function mintReward(address to, uint256 amount, bytes32 ref) external onlyRole(OPERATOR_ROLE) {
        require(!_used[ref]);
        _used[ref] = true;
        _mint(to, amount);
        emit RewardMinted(to, ref, amount);
    }
}

contract PlainPerks is ERC721, AccessControl, EIP712, Nonces, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Collection {
        address payout;
        uint256 price;
        uint256 maxSupply;
        uint256 minted;
        uint256 maxPerUser;
        uint256 charges;
        bool active;
    }

    IERC20 private immutable ltz;
    uint256 private nextToken;
    mapping(uint256 id => Collection) private collections;
    mapping(uint256 id => mapping(address user => uint256)) private claims;
    mapping(uint256 token => uint256) private remaining;

    event Claimed(uint256 indexed id, address indexed user, uint256 indexed token, uint256 price, bytes32 ref);
    event Redeemed(uint256 indexed token, address indexed holder, bytes32 indexed ref, uint256 amount);

    constructor(IERC20 ltz_) ERC721("Plain", "PLAIN") EIP712("Plain", "1") {
        ltz = ltz_;
        _grantRole(DEFAULT_ADMIN_ROLE, _msgSender());
    }

    function create(uint256 id, Collection calldata c) external onlyRole(DEFAULT_ADMIN_ROLE) {
        collections[id] = c;
    }

    function claimFor(address user, uint256 id, uint256 maxPrice, bytes32 ref)
        external
        onlyRole(OPERATOR_ROLE)
        nonReentrant
    {
        claim(user, id, maxPrice, ref);
    }

    function claimWithSig(address user, uint256 id, uint256 maxPrice, bytes32 ref, uint256 deadline, bytes calldata sig)
        external
        nonReentrant
    {
        require(block.timestamp <= deadline);
        bytes32 typeHash =
            keccak256("Claim(address user,uint256 id,uint256 maxPrice,bytes32 ref,uint256 nonce,uint256 deadline)");
        bytes32 digest =
            _hashTypedDataV4(keccak256(abi.encode(typeHash, user, id, maxPrice, ref, _useNonce(user), deadline)));
        require(ECDSA.recoverCalldata(digest, sig) == user);
        claim(user, id, maxPrice, ref);
    }

    function claim(address user, uint256 id, uint256 maxPrice, bytes32 ref) private {
        Collection storage c = collections[id];
        require(c.active && c.price <= maxPrice && c.minted < c.maxSupply);
        require(claims[id][user] < c.maxPerUser);
        c.minted++;
        claims[id][user]++;
        uint256 token = ++nextToken;
        remaining[token] = c.charges;
        ltz.safeTransferFrom(user, c.payout, c.price);
        _safeMint(user, token);
        emit Claimed(id, user, token, c.price, ref);
    }

    function redeem(uint256 token, address holder, uint256 amount, bytes32 ref) external onlyRole(OPERATOR_ROLE) {
        require(ownerOf(token) == holder);
        remaining[token] -= amount;
        emit Redeemed(token, holder, ref, amount);
    }

    function supportsInterface(bytes4 id) public view override(ERC721, AccessControl) returns (bool) {
        return super.supportsInterface(id);
    }
}

contract PlainSale is AccessControl, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Item {
        address payout;
        uint256 price;
        uint256 stock;
        uint256 maxPerOrder;
        bool active;
    }

    IERC20 private immutable ltz;
    mapping(uint256 id => Item) private items;
    mapping(bytes32 ref => bool) private placed;

    event Purchased(uint256 indexed id, address indexed buyer, bytes32 indexed ref, uint256 quantity, uint256 paid);

    constructor(IERC20 ltz_) {
        ltz = ltz_;
        _grantRole(DEFAULT_ADMIN_ROLE, _msgSender());
    }

    function setItem(uint256 id, Item calldata item) external onlyRole(DEFAULT_ADMIN_ROLE) {
        items[id] = item;
    }

    function buyFor(address buyer, uint256 id, uint256 quantity, uint256 maxTotal, bytes32 ref)
        external
        onlyRole(OPERATOR_ROLE)
        nonReentrant
    {
        Item storage item = items[id];
        require(item.active && quantity <= item.maxPerOrder && !placed[ref]);
        placed[ref] = true;
        item.stock -= quantity;
        uint256 total = quantity * item.price;
        require(total <= maxTotal);
        ltz.safeTransferFrom(buyer, item.payout, total);
        emit Purchased(id, buyer, ref, quantity, total);
    }
}

contract PlainEscrow is AccessControl, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Deal {
        address user;
        address business;
        uint256 amount;
        uint256 refundAfter;
        uint256 status;
    }

    IERC20 private immutable ltz;
    mapping(bytes32 id => Deal) private deals;
    mapping(address business => bool) private approved;

    event Locked(bytes32 indexed id, address indexed user, address indexed business, uint256 amount, uint256 time);
    event Released(bytes32 indexed id, address indexed user, address indexed business, uint256 amount);

    constructor(IERC20 ltz_) {
        ltz = ltz_;
        _grantRole(DEFAULT_ADMIN_ROLE, _msgSender());
    }

    function approve(address business) external onlyRole(DEFAULT_ADMIN_ROLE) {
        approved[business] = true;
    }

    function lockFor(address user, address business, uint256 amount, uint256 refundAfter, bytes32 id)
        external
        onlyRole(OPERATOR_ROLE)
        nonReentrant
    {
        require(deals[id].status == 0 && approved[business] && refundAfter > block.timestamp);
        deals[id] = Deal(user, business, amount, refundAfter, 1);
        ltz.safeTransferFrom(user, address(this), amount);
        emit Locked(id, user, business, amount, refundAfter);
    }

    function release(bytes32 id) external nonReentrant {
        Deal storage deal = deals[id];
        require(deal.status == 1 && _msgSender() == deal.user);
        deal.status = 2;
        ltz.safeTransfer(deal.business, deal.amount);
        emit Released(id, deal.user, deal.business, deal.amount);
    }
}
