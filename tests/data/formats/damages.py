"""Kinds of damage to a file: each function takes a random generator and bytes, and returns changed bytes."""

import gzip
import re
from collections.abc import Callable
from random import Random

Damage = Callable[[Random, bytes], bytes]

NUMBERS = [
    b"99999999999",
    b"-2147483649",
    b"1_0",
    b"0x1",
    "\u0661".encode(),
    b"1e999",
    b"NaN",
    b"1.0",
    b"9" * 5000,
    b"-1",
    b"0",
]
VALUES = [b"null", b"true", b"1.5", b"{}", b"[]", b'[["a"]]', b'{"a": {"b": [1]}}', b"9" * 5000]
VALUES += [b'""', b'" "', b'"\\ud800"', b'"\\u0000"', b'"\\ufeff"']
CODE = [
    b"[__import__('os').getcwd()]",
    b"['a' 'b']",
    b"[{[]}]",
    b"['a'] * 9",
    b"['a', f'b']",
    b"('a',)",
    b"-" * 9999 + b"1",
    b"['a'",
    b"[b'a']",
]
CHARACTERS = [b"\0", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b" ", b'"', b"'", b"\\", b"{", b","]
CHARACTERS += [b"\\ud83d", b"\xed\xa0\x80", b"\xff", b"\xc3", b"\x1c"]
CHARACTERS += [character.encode() for character in "\u2028\x85\u00a0\u200b\U0001f681é"]
NESTED = [b"[" * 100_000, b'{"a":' * 3000, b"[" * 300 + b"]" * 300, b"x" * 200_000]


def position(random: Random, raw: bytes) -> int:
    return random.randrange(len(raw) + 1)


def piece(random: Random, raw: bytes) -> slice:
    start = position(random, raw)
    return slice(start, start + random.choice([1, 1, 2, 5, 100, 3000]))


def put(random: Random, raw: bytes, new: bytes) -> bytes:
    at = position(random, raw)
    return raw[:at] + new + raw[at:]


def flip(random: Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(random.choice([1, 1, 3]) if raw else 0):
        changed[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return bytes(changed)


def delete(random: Random, raw: bytes) -> bytes:
    gone = piece(random, raw)
    return raw[: gone.start] + raw[gone.stop :]


def double(random: Random, raw: bytes) -> bytes:
    again = piece(random, raw)
    return raw[: again.stop] + raw[again] + raw[again.stop :]


def in_place_of(pattern: bytes, new: list[bytes]) -> Damage:
    """Replace one of the matches by one of these."""

    def replace(random: Random, raw: bytes) -> bytes:
        matches = list(re.finditer(pattern, raw))
        if not matches:
            return raw
        one = random.choice(matches)
        return raw[: one.start()] + random.choice(new) + raw[one.end() :]

    return replace


def of_lines(change: Callable[[Random, list[bytes], int], None]) -> Damage:
    def damage(random: Random, raw: bytes) -> bytes:
        matches = raw.splitlines(keepends=True)
        if matches:
            change(random, matches, random.randrange(len(matches)))
        return b"".join(matches)

    return damage


def swap(random: Random, matches: list[bytes], one: int) -> None:
    other = random.randrange(len(matches))
    matches[one], matches[other] = matches[other], matches[one]


def written_in(encoding: str) -> Damage:
    return lambda random, raw: raw.decode(errors="replace").encode(encoding, errors="replace")


def line_ends(end: bytes) -> Damage:
    return lambda random, raw: raw.replace(b"\n", end)


TEXT: dict[str, Damage] = {
    "flip bits": flip,
    "delete bytes": delete,
    "double bytes": double,
    "insert bytes": lambda random, raw: put(random, raw, random.randbytes(random.choice([1, 2, 9]))),
    "insert a character": lambda random, raw: put(random, raw, random.choice(CHARACTERS)),
    "insert nesting or length": lambda random, raw: put(random, raw, random.choice(NESTED)),
    "cut the end": lambda random, raw: raw[: position(random, raw)],
    "cut the start": lambda random, raw: raw[position(random, raw) :],
    "drop a line": of_lines(lambda random, matches, one: matches.pop(one)),
    "repeat a line": of_lines(
        lambda random, matches, one: matches.insert(random.choice([one, 0, len(matches)]), matches[one])
    ),
    "swap lines": of_lines(swap),
    "join lines": in_place_of(rb"\n", [b"", b" ", b"\t", b"\r", "\u2028".encode()]),
    "break a line": in_place_of(rb"[ ,\t]", [b"\n", b"\r\n", b"\n\n"]),
    "change a separator": in_place_of(rb"\t| ", [b"", b"\t", b"\t\t", b" ", b"  ", b","]),
    "change a quote": in_place_of(rb"[\"']", [b"", b'""', b"'", b'"', b'\\"', b'"""', b"\xe2\x80\x9d"]),
    "change a mark": in_place_of(rb"[][{}:,]", [b"", b"[", b"]", b"{", b"}", b":", b",", b",,"]),
    "change a key": in_place_of(
        rb'"\w+":', [b'"_id":', b'"text":', b'"title":', b'"x":', b'"id":', b'"answers":']
    ),
    "change a number": in_place_of(rb"\d+", NUMBERS),
    "change a value": in_place_of(rb'"[^"]*"(?!:)|\[[^][]*\]', VALUES),
    "code for answers": in_place_of(rb"\[[^][]*\]", CODE),
    "windows line ends": line_ends(b"\r\n"),
    "doubled windows line ends": line_ends(b"\r\r\n"),
    "old mac line ends": line_ends(b"\r"),
    "byte order mark": lambda random, raw: b"\xef\xbb\xbf" * random.choice([1, 2]) + raw,
    "utf-16": written_in("utf-16"),
    "utf-16 without mark": written_in("utf-16-le"),
    "utf-32": written_in("utf-32"),
    "latin-1": written_in("latin-1"),
    "empty": lambda random, raw: random.choice([b"", b"\n", b"\xef\xbb\xbf"]),
}

PACKED: dict[str, Damage] = {
    "packed: flip bits": flip,
    "packed: flip bits of the head": lambda random, raw: flip(random, raw[:10]) + raw[10:],
    "packed: delete bytes": delete,
    "packed: insert bytes": TEXT["insert bytes"],
    "packed: cut the end": lambda random, raw: raw[: random.choice([position(random, raw), -1, -4, -8, 0])],
    "packed: cut the start": TEXT["cut the start"],
    "packed: garbage after": lambda random, raw: (
        raw + random.choice([b"\0", b"\0" * 9, b"x", b"\x1f\x8b", raw[:30]])
    ),
    "packed: twice": lambda random, raw: raw + raw,
    "packed: again": lambda random, raw: gzip.compress(raw, 1, mtime=0),
    "packed: not at all": lambda random, raw: gzip.decompress(raw),
}


def damaged(random: Random, raw: bytes, packable: bool = True) -> tuple[list[str], bool, bytes]:
    """One to three damages, whether the file is .gz now, and its bytes."""
    packed = random.random() < 0.25 and packable
    names, of_pack = [], packed and random.random() < 0.7
    for _ in range(0 if of_pack else random.choice([1, 1, 1, 2, 3])):
        name, raw = _one(random, raw, TEXT)
        names.append(name)
    if packed:
        raw = gzip.compress(raw, 1, mtime=0)
    if of_pack:
        name, raw = _one(random, raw, PACKED)
        names.append(name)
    return names, packed, raw


def _one(random: Random, raw: bytes, among: dict[str, Damage]) -> tuple[str, bytes]:
    """A damage that changes the bytes; not every kind of damage applies to every file."""
    while True:
        name = random.choice(list(among))
        changed = among[name](random, raw)
        if changed != raw:
            return name, changed
