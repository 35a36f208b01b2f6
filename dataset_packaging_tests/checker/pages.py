"""Parquet pages read by hand, because no library says whether a page carries a checksum."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

DICTIONARY_PAGE = 2
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


@dataclass(frozen=True, slots=True)
class Page:
    """The header of one page (PageHeader of parquet.thrift) and whether its checksum is right (None: it has none)."""

    kind: int
    checksum_holds: bool | None


def read_pages(data: memoryview, column: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """Yields the pages of one column chunk of a file held in `data`."""
    position = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        position = min(position, column.dictionary_page_offset)
    end = position + column.total_compressed_size
    while position < end:
        reader = _Reader(data, position)
        header = reader.struct()
        body = data[reader.position : reader.position + header[3]]
        found = header.get(4)
        yield Page(header[1], None if found is None else zlib.crc32(body) == found & 0xFFFFFFFF)
        position = reader.position + header[3]


class _Reader:
    """Thrift's compact protocol, as far as a page header needs it: integers are kept, the rest is passed over."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self.position = position

    def struct(self) -> dict[int, int]:
        found: dict[int, int] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            value = self._value(head & 15)
            if value is not None:
                found[field] = value
        return found

    def _value(self, kind: int) -> int | None:
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _BYTE:
            self._byte()
        elif kind == _DOUBLE:
            self.position += 8
        elif kind == _BINARY:
            length = self._varint()
            self.position += length
        elif kind == _STRUCT:
            self.struct()
        elif kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._value(head & 15)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"no page header at byte {self.position}: type {kind}")
        return None

    def _byte(self) -> int:
        self.position += 1
        return int(self._data[self.position - 1])

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
