import unittest

from intervals import merge


class Merge(unittest.TestCase):
    def test_overlap(self) -> None:
        self.assertEqual(merge([(1, 3), (2, 5)]), [(1, 5)])

    def test_order(self) -> None:
        self.assertEqual(merge([(7, 8), (1, 3), (2, 5)]), [(1, 5), (7, 8)])

    def test_inside(self) -> None:
        self.assertEqual(merge([(1, 9), (2, 3)]), [(1, 9)])
