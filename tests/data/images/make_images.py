"""Writes the images that tests/io/image_test.cpp decodes, and Pillow's pixels of each (RGB, turned as EXIF says) into
expected.npz. Needs NumPy and Pillow; run it in this folder."""
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

random = np.random.default_rng(5)
HEIGHT, WIDTH = 21, 35  # odd, and not multiples of any block


def picture(height=HEIGHT, width=WIDTH):
    """Smooth colours, hard edges and noise: what shows a wrong upsampling or transform."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), 128 + 100 * np.sin(x / 3 + y / 5)], -1)
    rgb[height // 3: height // 2, width // 4: width // 2] = (255, 0, 30)
    rgb[height // 2:, width // 2:] += random.normal(0, 40, rgb[height // 2:, width // 2:].shape)
    return Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))


expected = {}


def keep(name):
    with Image.open(name) as image:
        expected[name] = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def save(image, name, **options):
    image.save(name, **options)
    keep(name)


# ---- JPEG
rgb = picture()
for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
    save(rgb, f"{name}.jpg", quality=85, subsampling=subsampling)
    save(rgb, f"{name}_progressive.jpg", quality=60, subsampling=subsampling, progressive=True)
save(rgb.convert("L"), "grey.jpg", quality=80)
save(rgb.convert("CMYK"), "cmyk.jpg", quality=85)
save(picture(1, 1), "one.jpg")
save(picture(16, 16), "whole_blocks.jpg")
save(rgb, "optimized_restart.jpg", quality=70, optimize=True, restart_marker_blocks=2)
save(rgb, "rgb_colours.jpg", quality=90, keep_rgb=True)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x010F] = "maker"
    exif[0x0112] = orientation
    save(picture(6, 9), f"turned{orientation}.jpg", quality=75, exif=exif)

# ---- PNG
exif = Image.Exif()
exif[0x0112] = 6
save(rgb, "rgb.png", optimize=True)
save(rgb.convert("L"), "grey.png")
save(rgb.convert("1"), "bilevel.png")
save(rgb.quantize(13), "palette16.png")
save(rgb.quantize(4), "palette4.png", transparency=2)
save(rgb.quantize(200), "palette256.png")
alpha = Image.fromarray(random.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8))
rgba = rgb.copy()
rgba.putalpha(alpha)
save(rgba, "rgba.png")
save(Image.merge("LA", [rgb.convert("L"), alpha]), "grey_alpha.png")
save(rgb, "transparent_colour.png", transparency=(255, 0, 30))
save(picture(6, 9), "turned6.png", exif=exif)
save(picture(1, 1), "one.png")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(name, depth, colour, rows, interlace=0):
    """PNG kinds that Pillow reads but does not write. `rows` are the packed bytes of every row."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, interlace)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    with open(name, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    keep(name)


def interlaced(pixels):
    """The rows of Adam7's seven passes."""
    for top, left, down, right in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                                   (1, 0, 2, 1)):
        for row in pixels[top::down, left::right]:
            yield row.tobytes()


deep = random.integers(0, 65536, (HEIGHT, WIDTH, 4), dtype=np.uint16).astype(">u2")
write_png("rgb16.png", 16, 2, [row.tobytes() for row in deep[:, :, :3]])
write_png("rgba16.png", 16, 6, [row.tobytes() for row in deep])
write_png("grey_alpha16.png", 16, 4, [row.tobytes() for row in deep[:, :, :2]])
write_png("grey16.png", 16, 0, [row.tobytes() for row in deep[:, :, 0]])
# Pillow clips 16-bit grey to 255, which leaves a white image; the upper byte is what it keeps of 16-bit colour.
expected["grey16.png"] = np.repeat((deep[:, :, :1] >> 8).astype(np.uint8), 3, axis=2)
write_png("interlaced.png", 8, 2, interlaced(np.asarray(rgb)), interlace=1)
write_png("interlaced16.png", 16, 6, interlaced(deep), interlace=1)
for depth in (2, 4):
    values = random.integers(0, 1 << depth, (HEIGHT, WIDTH))
    width = -(-WIDTH * depth // 8) * 8 // depth
    padded = np.zeros((HEIGHT, width), int)
    padded[:, :WIDTH] = values
    packed = sum(padded[:, i::8 // depth] << (8 - depth * (i + 1)) for i in range(8 // depth)).astype(np.uint8)
    write_png(f"grey{depth}bit.png", depth, 0, [row.tobytes() for row in packed])

# ---- BMP
save(rgb, "rgb.bmp")
save(rgb.convert("L"), "grey.bmp")
save(rgb.convert("1"), "bilevel.bmp")
save(rgb.quantize(200), "palette256.bmp")
save(rgba, "rgba.bmp")


def write_bmp(name, bits, rows, down=-1, compression=0, palette=b"", masks=(), header=40):
    """Rows from the top down (`down` -1) or from the bottom up (1); run-length codes are one row. The header is Windows'
    of any version, or OS/2's of 12 bytes."""
    data = b"".join(row + b"\0" * (-len(row) % 4) for row in rows)
    masks = struct.pack(f"<{len(masks)}I", *masks)
    info = struct.pack("<IiiHHIIiiII", header, WIDTH, down * HEIGHT, 1, bits, compression, len(data), 0, 0, 0, 0)
    info = info + masks.ljust(header - 40, b"\0") if header > 12 else struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    begin = 14 + len(info) + len(palette)
    with open(name, "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + info + palette + data)
    keep(name)


def runs(indices, four_bits):
    """Run-length codes of rows from the bottom up: runs of equal pixels (of two colours by turns), single ones between."""
    code = b""
    for row in indices[::-1]:
        at = 0
        while at < WIDTH:
            end = at + 1
            while end < min(WIDTH, at + 255) and row[end] == row[end - 1 - four_bits * (end - at > 1)]:
                end += 1
            if end - at < 3 and at + 4 <= WIDTH:
                single = row[at:at + 4]
                code += b"\0\4" + (bytes(single) if not four_bits else bytes(single[::2] << 4 | single[1::2]))
                at += 4
            else:
                code += bytes([end - at, row[at] if not four_bits else row[at] << 4 | row[min(at + 1, end - 1)]])
                at = end
        code += b"\0\0"
    return [code + b"\0\1"]


write_bmp("top_down.bmp", 24, [row.tobytes() for row in np.asarray(rgb)[:, :, ::-1]])
words = random.integers(0, 65536, (HEIGHT, WIDTH), dtype=np.uint16).astype("<u2")
quads = random.integers(0, 1 << 32, (HEIGHT, WIDTH), dtype=np.uint32).astype("<u4")
write_bmp("rgb555.bmp", 16, [row.tobytes() for row in words], down=1)
write_bmp("rgb565.bmp", 16, [row.tobytes() for row in words], compression=3, masks=(0xF800, 0x7E0, 0x1F), header=52)
write_bmp("masks.bmp", 32, [row.tobytes() for row in quads], compression=3, masks=(0xFF, 0xFF00, 0xFF0000, 0xFF000000),
          header=108)
colours = random.integers(0, 256, 1024, dtype=np.uint8).tobytes()
write_bmp("os2.bmp", 8, [row.tobytes() for row in words.astype(np.uint8)], header=12, palette=colours[:768])
indices = np.asarray(rgb.convert("L")) // 16
write_bmp("rle8.bmp", 8, runs(indices, False), down=1, compression=1, palette=colours)
write_bmp("rle4.bmp", 4, runs(indices, True), down=1, compression=2, palette=colours[:64])

# ---- WebP
exif = Image.Exif()
exif[0x0112] = 6
xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
save(rgb, "lossy.webp", quality=80)
save(rgb, "lossless.webp", lossless=True)
save(rgba, "rgba.webp", quality=80)
save(rgba, "rgba_lossless.webp", lossless=True, exact=True)
save(picture(6, 9), "turned6.webp", exif=exif)
save(picture(6, 9), "turned8.webp", xmp=xmp)
save(rgba, "animation.webp", save_all=True, append_images=[picture(), picture()], quality=50)

np.savez_compressed("expected.npz", **expected)
