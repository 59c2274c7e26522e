"""Small files that ask for much memory or time, written byte by byte."""

import struct
import zlib

MATRIX = struct.pack(">9I", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
SAMPLES = 30_000_000


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def full(kind: bytes, *numbers: int, flags: int = 0, rest: bytes = b"") -> bytes:
    """A box with version and flags."""
    return box(kind, struct.pack(f">{1 + len(numbers)}I", flags, *numbers), rest)


def picture_entry(kind: bytes = b"jpeg", width: int = 64, height: int = 48) -> bytes:
    size = struct.pack(">HH", width, height)
    return box(kind, bytes(7), b"\x01", bytes(16), size, bytes(14), bytes(32), struct.pack(">Hh", 24, -1))


def sound_entry() -> bytes:
    return box(b"sowt", bytes(7), b"\x01", bytes(8), struct.pack(">HHHHI", 1, 16, 0, 0, 8000 << 16))


def track(
    *, samples: int, size: int = 1, sound: bool = False, chunks: int = 1, per_chunk: int | None = None, edits: int = 0
) -> bytes:
    """Samples of one size and one tick, in chunks, shown as often as there are edits."""
    per_chunk = samples if per_chunk is None else per_chunk
    handler, entry = (b"soun", sound_entry()) if sound else (b"vide", picture_entry())
    table = box(
        b"stbl",
        full(b"stsd", 1, rest=entry),
        full(b"stts", 1, samples, 1),
        full(b"stsc", 1, 1, per_chunk, 1),
        full(b"stsz", size, samples),
        full(b"stco", chunks, *[1000] * chunks),
    )
    media = box(b"minf", full(b"smhd" if sound else b"vmhd", 0, 0), table)
    listed = b"".join(struct.pack(">IiI", samples, 0, 1 << 16) for _ in range(edits))
    return box(
        b"trak",
        full(b"tkhd", 0, 0, 1, 0, samples, 0, 0, 0, 0, flags=3, rest=MATRIX + bytes(8)),
        box(b"edts", full(b"elst", edits, rest=listed)) if edits else b"",
        box(b"mdia", full(b"mdhd", 0, 0, 1000, samples, 0), full(b"hdlr", 0, rest=handler + bytes(13)), media),
    )


def header(*tracks: bytes) -> bytes:
    movie = full(b"mvhd", 0, 0, 1000, 1000, 1 << 16, rest=b"\x01" + bytes(11) + MATRIX + bytes(24) + b"\0\0\0\x09")
    return box(b"moov", movie, *tracks)


def mp4(head: bytes, data: int = 12_000) -> bytes:
    return box(b"ftyp", b"isom", bytes(4), b"isommp41") + head + box(b"mdat", bytes(data))


def many_samples() -> bytes:
    """The MP4 of 13 KB that took 2.3 GB and four minutes."""
    return mp4(header(track(samples=SAMPLES)))


def many_samples_compressed() -> bytes:
    """The same in a compressed header of old QuickTime."""
    head = header(track(samples=SAMPLES))
    packed = box(b"cmvd", struct.pack(">I", len(head)), zlib.compress(head))
    return mp4(box(b"moov", box(b"cmov", box(b"dcom", b"zlib"), packed)))


def many_samples_in_a_fragment() -> bytes:
    """A fragment without a size or duration for each of its samples."""
    head = header(track(samples=0), box(b"mvex", full(b"trex", 1, 1, 1, 1, 0)))
    run = full(b"trun", SAMPLES, 100, flags=1)
    fragment = box(b"moof", full(b"mfhd", 1), box(b"traf", full(b"tfhd", 1, 1, flags=0x10), run))
    return mp4(head + fragment)


def many_sound_chunks() -> bytes:
    """Sound whose chunks each claim two billion samples."""
    return mp4(header(track(samples=2), track(samples=2**31, size=2, sound=True, chunks=40, per_chunk=2**31 - 1)))


def shared_samples() -> bytes:
    """Samples that are all the same part of the file."""
    made = track(samples=12_000, size=90_000, chunks=12_000, per_chunk=1)
    return mp4(header(made), data=95_000)


def many_edits() -> bytes:
    """An edit list that shows the whole video a thousand times."""
    return mp4(header(track(samples=100_000, edits=1000)), data=100_000)


def gif(width: int, height: int, pictures: int, padding: int = 0) -> bytes:
    """Pictures that change a single pixel each; what is padded is no part of any."""
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    picture = b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01\0"
    return head + picture * pictures + b"\x3b" + bytes(padding)


def many_pictures() -> bytes:
    """The GIF of 46 KB that took over two minutes and 9 GB."""
    return gif(8192, 4352, 2000)


def slow() -> bytes:
    """A GIF that is accepted for its size, and takes a minute and more."""
    return gif(4096, 4352, 2000, padding=100_000)


BOMBS = {
    "samples.mp4": many_samples,
    "compressed.mov": many_samples_compressed,
    "fragment.mp4": many_samples_in_a_fragment,
    "sound.mov": many_sound_chunks,
    "edits.mp4": many_edits,
    "shared.mp4": shared_samples,
    "pictures.gif": many_pictures,
}
