"""Functions of one image: a Pillow image, or an array HW or HWC in RGB order; the result is of the same kind."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing
from argosy.vision.transforms.pillow import Picture, Size, by_pillow, resampling, size_of

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "center_crop",
    "crop",
    "hflip",
    "normalize",
    "pad",
    "resize",
    "rotate",
    "to_grayscale",
    "to_tensor",
    "vflip",
]


def to_tensor(pic: Picture, data_format: str = "CHW") -> torch.Tensor:
    """A tensor CHW or HWC; values of 8 bits become float32 from 0 to 1, others keep their type."""
    channels_first = _is_chw(data_format)
    size_of(pic)
    array = np.array(pic)  # a copy: a tensor needs writable memory
    if isinstance(pic, Image.Image) and pic.mode == "1":
        array = array.astype(np.uint8) * 255
    array = array[:, :, None] if array.ndim == 2 else array
    tensor = torch.from_numpy(array.transpose(2, 0, 1) if channels_first else array).contiguous()
    return tensor.float() / 255 if tensor.dtype is torch.uint8 else tensor


def resize(img: Picture, size: Size, interpolation: str = "bilinear") -> Picture:
    """Resize to (height, width); an int is the length of the shorter side."""
    height, width = size_of(img)
    if isinstance(size, int):
        short = min(height, width)
        if short == size:
            return img
        size = (int(size * height / short), int(size * width / short))
    wanted = (int(size[1]), int(size[0]))
    return by_pillow(img, lambda image: image.resize(wanted, resampling(interpolation)))


def crop(img: Picture, top: int, left: int, height: int, width: int) -> Picture:
    """The rectangle whose first row and column are `top` and `left`."""
    if isinstance(img, Image.Image):
        return img.crop((left, top, left + width, top + height))
    size_of(img)
    return img[top : top + height, left : left + width]


def center_crop(img: Picture, output_size: Size) -> Picture:
    """The middle of the image: (height, width), or a square."""
    height, width = size_of(img)
    rows, columns = (output_size, output_size) if isinstance(output_size, int) else output_size
    return crop(img, round((height - rows) / 2), round((width - columns) / 2), rows, columns)


def hflip(img: Picture) -> Picture:
    """Mirror left and right."""
    size_of(img)
    return ImageOps.mirror(img) if isinstance(img, Image.Image) else img[:, ::-1]


def vflip(img: Picture) -> Picture:
    """Mirror top and bottom."""
    size_of(img)
    return ImageOps.flip(img) if isinstance(img, Image.Image) else img[::-1]


def pad(img: Picture, padding: Size, fill: Any = 0, padding_mode: str = "constant") -> Picture:
    """Add borders: one width for all, (left and right, top and bottom), or (left, top, right, bottom).

    `padding_mode`: constant (`fill`: a number, or one per channel), edge, reflect or symmetric, as in `numpy.pad`.
    """
    modes = ("constant", "edge", "reflect", "symmetric")
    if padding_mode not in modes:
        raise ConfigError(f"pad: padding_mode={padding_mode!r}; use one of {', '.join(modes)}")
    sides = [padding] * 4 if isinstance(padding, int) else list(padding) * (2 if len(padding) == 2 else 1)
    if len(sides) != 4:
        raise ConfigError(f"pad: padding={padding!r}; give 1, 2 or 4 widths")
    left, top, right, bottom = sides
    size_of(img)
    if padding_mode == "constant" and isinstance(img, Image.Image):
        return ImageOps.expand(img, (left, top, right, bottom), fill)
    array = np.asarray(img)
    widths = [(top, bottom), (left, right), (0, 0)][: array.ndim]
    if padding_mode != "constant":
        padded = np.pad(array, widths, mode=padding_mode)  # type: ignore[call-overload]  # one of `modes`
    else:
        padded = np.empty([n + sum(w) for n, w in zip(array.shape, widths, strict=True)], array.dtype)
        padded[:] = fill
        padded[top : top + array.shape[0], left : left + array.shape[1]] = array
    return Image.fromarray(padded) if isinstance(img, Image.Image) else padded


def rotate(
    img: Picture,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: tuple[float, float] | None = None,
    fill: Any = 0,
) -> Picture:
    """Rotate counter-clockwise by degrees, around `center` (x, y); `expand` enlarges the image to hold all of it."""
    resample = resampling(interpolation)
    return by_pillow(img, lambda image: image.rotate(angle, resample, expand, center, fillcolor=fill))


def adjust_brightness(img: Picture, brightness_factor: float) -> Picture:
    """0 is black, 1 the image itself, 2 twice as bright."""
    return by_pillow(
        img, lambda image: ImageEnhance.Brightness(image).enhance(brightness_factor), colours="brightness"
    )


def adjust_contrast(img: Picture, contrast_factor: float) -> Picture:
    """0 is the mean grey, 1 the image itself."""
    return by_pillow(
        img, lambda image: ImageEnhance.Contrast(image).enhance(contrast_factor), colours="contrast"
    )


def adjust_saturation(img: Picture, saturation_factor: float) -> Picture:
    """0 is grey, 1 the image itself."""
    return by_pillow(
        img, lambda image: ImageEnhance.Color(image).enhance(saturation_factor), colours="saturation"
    )


def adjust_hue(img: Picture, hue_factor: float) -> Picture:
    """Shift the hue by a fraction of the colour circle, from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ConfigError(f"adjust_hue: hue_factor={hue_factor}; use -0.5 to 0.5")
    return by_pillow(img, lambda image: _shift_hue(image, hue_factor), colours="hue")


def to_grayscale(img: Picture, num_output_channels: int = 1) -> Picture:
    """Grey, with one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ConfigError(f"to_grayscale: num_output_channels={num_output_channels}; use 1 or 3")
    grey = by_pillow(img, lambda image: image.convert("L"), colours="to_grayscale")
    if isinstance(grey, Image.Image):
        return grey if num_output_channels == 1 else Image.merge("RGB", [grey] * 3)
    return np.repeat(grey.reshape(*grey.shape[:2], 1), num_output_channels, axis=2)


def normalize(img: Any, mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False) -> Any:
    """(img - mean) / std in float32, by channel; a tensor stays a tensor. `to_rgb` reverses the channels first."""
    axis = 0 if _is_chw(data_format) else -1
    array = img.numpy() if isinstance(img, torch.Tensor) else np.asarray(img)
    array = np.flip(array, axis) if to_rgb else array
    shape = (-1, 1, 1) if axis == 0 else (-1,)
    offset, scale = (np.asarray(value, dtype=np.float32).reshape(shape) for value in (mean, std))
    result = (array.astype(np.float32) - offset) / scale
    return torch.from_numpy(result) if isinstance(img, torch.Tensor) else result


def _is_chw(data_format: str) -> bool:
    if data_format not in ("CHW", "HWC"):
        raise ConfigError(f"data_format={data_format!r}; use 'CHW' or 'HWC'")
    return data_format == "CHW"


def _shift_hue(image: Image.Image, factor: float) -> Image.Image:
    if image.mode in ("L", "1", "I", "F"):
        return image  # grey has no hue
    hue, saturation, value = image.convert("HSV").split()
    shift = round(factor * 255)
    turned = hue.point(lambda h: (h + shift) % 256)
    return Image.merge("HSV", (turned, saturation, value)).convert(image.mode)


__getattr__ = missing(__name__, globals())
