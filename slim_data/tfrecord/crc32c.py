"""CRC-32C (Castagnoli), masked as in TFRecord files, vectorized over many strings."""

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected


def _table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _table()


def masked(rows: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Returns the masked checksum of each row, `rotate_right(crc, 15) + 0xa282ead8` mod 2^32.

    Args:
        rows: uint8 [n, length].
        lengths: number of bytes of each row to include, int [n]; default: all.
    """
    lengths = np.full(len(rows), rows.shape[1]) if lengths is None else lengths
    # Longest first: the rows that reach a column are the first.
    order = np.argsort(-lengths, kind="stable")
    num_rows = np.searchsorted(-lengths[order], -np.arange(rows.shape[1]), side="left")
    rows = np.ascontiguousarray(rows[order].T)
    crc = np.full(len(order), 0xFFFFFFFF, np.uint32)
    for column, n in zip(rows, num_rows, strict=True):
        crc[:n] = _TABLE[(crc[:n] ^ column[:n]) & 0xFF] ^ (crc[:n] >> 8)
    crc[order] = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
