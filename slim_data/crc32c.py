"""CRC-32C (Castagnoli), masked as TFRecord files store it, for many short strings at once."""

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected


def _table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _table()


def masked(rows):
    """Returns the masked checksum of each row, `rotate_right(crc, 15) + 0xa282ead8` mod 2^32.

    Args:
        rows: uint8 array of shape [n, length].

    Returns:
        uint32 array of shape [n].
    """
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
