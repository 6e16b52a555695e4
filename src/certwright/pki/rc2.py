"""RC2 in CBC mode with a reduced effective key, for PKCS#12's `pbeWithSHA1And40BitRC2-CBC`.

Source: RFC 2268. Broken as a cipher; kept only because old readers of key stores support nothing else.
"""

from __future__ import annotations

# RFC 2268 §2: "an array of "random" bytes based on the digits of PI", PITABLE.
_PI = bytes.fromhex(
    "d9 78 f9 c4 19 dd b5 ed 28 e9 fd 79 4a a0 d8 9d c6 7e 37 83 2b 76 53 8e 62 4c 64 88 44 8b fb a2 "
    "17 9a 59 f5 87 b3 4f 13 61 45 6d 8d 09 81 7d 32 bd 8f 40 eb 86 b7 7b 0b f0 95 21 22 5c 6b 4e 82 "
    "54 d6 65 93 ce 60 b2 1c 73 56 c0 14 a7 8c f1 dc 12 75 ca 1f 3b be e4 d1 42 3d d4 30 a3 3c b6 26 "
    "6f bf 0e da 46 69 07 57 27 f2 1d 9b bc 94 43 03 f8 11 c7 f6 90 ef 3e e7 06 c3 d5 2f c8 66 1e d7 "
    "08 e8 ea de 80 52 ee f7 84 aa 72 ac 35 4d 6a 2a 96 1a d2 71 5a 15 49 74 4b 9f d0 5e 04 18 a4 ec "
    "c2 e0 41 6e 0f 51 cb cc 24 91 af 50 a1 f4 70 39 99 7c 3a 85 23 b8 b4 7a fc 02 36 5b 25 55 97 31 "
    "2d 5d fa 98 e3 8a 92 ae 05 df 29 10 67 6c ba c9 d3 00 e6 cf e1 9e a8 2c 63 16 01 3f 58 e2 89 a9 "
    "0d 38 34 1b ab 33 ff b0 bb 48 0c 5f b9 b1 cd 2e c5 f3 db 47 e5 a5 9c 77 0a a6 20 68 fe 7f c1 ad"
)
_SHIFTS = (1, 2, 3, 5)


def encrypt_cbc(data: bytes, *, key: bytes, effective_bits: int, iv: bytes) -> bytes:
    """Encrypt `data`, padded as in PKCS#7. `iv` has eight bytes."""
    words = _expand(key, effective_bits)
    padding = 8 - len(data) % 8
    padded = data + bytes((padding,)) * padding
    previous, blocks = iv, []
    for at in range(0, len(padded), 8):
        mixed = bytes(a ^ b for a, b in zip(padded[at : at + 8], previous, strict=True))
        previous = encrypt_block(mixed, words)
        blocks.append(previous)
    return b"".join(blocks)


def decrypt_cbc(data: bytes, *, key: bytes, effective_bits: int, iv: bytes) -> bytes:
    """The inverse of `encrypt_cbc`. Raises `ValueError` for data that it did not make."""
    words = _expand(key, effective_bits)
    if not data or len(data) % 8:
        raise ValueError("not whole blocks")
    previous, blocks = iv, []
    for at in range(0, len(data), 8):
        block = data[at : at + 8]
        mixed = decrypt_block(block, words)
        blocks.append(bytes(a ^ b for a, b in zip(mixed, previous, strict=True)))
        previous = block
    padded = b"".join(blocks)
    padding = padded[-1]
    if not 1 <= padding <= 8 or padded[-padding:] != bytes((padding,)) * padding:
        raise ValueError("the padding is wrong")
    return padded[:-padding]


def _expand(key: bytes, effective_bits: int) -> tuple[int, ...]:
    """RFC 2268 §2: the key becomes 64 words of 16 bits; only `effective_bits` of it count."""
    size, mask_size = len(key), (effective_bits + 7) // 8
    mask = 0xFF >> (8 * mask_size - effective_bits)
    table = bytearray(key) + bytearray(128 - size)
    for i in range(size, 128):
        table[i] = _PI[(table[i - 1] + table[i - size]) & 0xFF]
    table[128 - mask_size] = _PI[table[128 - mask_size] & mask]
    for i in range(127 - mask_size, -1, -1):
        table[i] = _PI[table[i + 1] ^ table[i + mask_size]]
    return tuple(table[2 * i] | table[2 * i + 1] << 8 for i in range(64))


def encrypt_block(block: bytes, words: tuple[int, ...]) -> bytes:
    """RFC 2268 §3: five mixing rounds, a mashing round, six, a mashing round, five."""
    r = [int.from_bytes(block[i : i + 2], "little") for i in (0, 2, 4, 6)]
    for number in range(16):
        _mix(r, words, 4 * number)
        if number in (4, 10):
            _mash(r, words)
    return b"".join(word.to_bytes(2, "little") for word in r)


def _mix(r: list[int], words: tuple[int, ...], at: int) -> None:
    for i in range(4):
        mixed = r[i] + words[at + i] + (r[i - 1] & r[i - 2]) + (~r[i - 1] & r[i - 3])
        mixed &= 0xFFFF
        r[i] = (mixed << _SHIFTS[i] | mixed >> (16 - _SHIFTS[i])) & 0xFFFF


def _mash(r: list[int], words: tuple[int, ...]) -> None:
    for i in range(4):
        r[i] = (r[i] + words[r[i - 1] & 63]) & 0xFFFF


def decrypt_block(block: bytes, words: tuple[int, ...]) -> bytes:
    """RFC 2268 §4: the rounds of `encrypt_block`, inverted and from the last to the first."""
    r = [int.from_bytes(block[i : i + 2], "little") for i in (0, 2, 4, 6)]
    for number in reversed(range(16)):
        if number in (4, 10):
            for i in (3, 2, 1, 0):
                r[i] = (r[i] - words[r[i - 1] & 63]) & 0xFFFF
        for i in (3, 2, 1, 0):
            mixed = r[i] >> _SHIFTS[i] | r[i] << (16 - _SHIFTS[i])
            mixed -= words[4 * number + i] + (r[i - 1] & r[i - 2]) + (~r[i - 1] & r[i - 3])
            r[i] = mixed & 0xFFFF
    return b"".join(word.to_bytes(2, "little") for word in r)
