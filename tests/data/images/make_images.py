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



def write_bmp(name, bits, rows):
    data = b"".join(row + b"\0" * (-len(row) % 4) for row in rows)
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, -HEIGHT, 1, bits, 0, len(data), 0, 0, 0, 0)
    with open(name, "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + header + data)
    keep(name)


write_bmp("top_down.bmp", 24, [row.tobytes() for row in np.asarray(rgb)[:, :, ::-1]])

np.savez_compressed("expected.npz", **expected)
