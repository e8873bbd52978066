"""Sizes are read and shown as heapprof reads and shows them."""

import pytest

from heapprof_cli import sizes


@pytest.mark.parametrize(
    "text, size",
    [
        ("24 MB", 24 << 20),
        ("24 MiB", 24 << 20),
        ("24mib", 24 << 20),
        ("1.5 KB", 1536),
        (".5K", 512),
        ("100 B", 100),
        ("100 bytes", 100),
        ("7", 7),
        (" 2 GiB ", 2 << 30),
        ("1TB", 1 << 40),
        (4096, 4096),
        (0, 0),
    ],
)
def test_a_size_is_read(text, size):
    assert sizes.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "1 XB", "-1 KB", "1 KB 2", "1,5 KB", -1, 1.5, None, True]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size; write a size such as '24 MiB'"):
        sizes.parse(text)


@pytest.mark.parametrize(
    "size, text",
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (800_000, "781.25KiB"),
        (10993488, "10.48MiB"),
        (-2048, "-2KiB"),
        (3 << 40, "3TiB"),
    ],
)
def test_a_size_is_shown(size, text):
    assert sizes.show(size) == text
