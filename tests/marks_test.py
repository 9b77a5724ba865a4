"""`parameterized` keeps only the pytest marks below it."""

import ast
import sys
import unittest

import pytest

from tests import source_tree


def lost_marks(source):
    """Returns the names of functions with a pytest mark above `parameterized`, which drops it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            names = [ast.unparse(decorator) for decorator in node.decorator_list]
            marked = [name.startswith("pytest.mark.") for name in names]
            if any(n.startswith("parameterized.") and any(marked[:i]) for i, n in enumerate(names)):
                found.append(node.name)
    return found


class MarksTest(unittest.TestCase):
    def test_marks_stand_below_parameters(self):
        for path in sorted((source_tree.ROOT / "tests").rglob("*_test.py")):
            self.assertEqual(lost_marks(path.read_text(encoding="utf-8")), [], path)

    def test_a_mark_above_parameters_is_found(self):
        for first, second, found in (
            ("@pytest.mark.slow", "@parameterized.parameters(1)", ["test_x"]),
            ("@parameterized.parameters(1)", "@pytest.mark.slow", []),
        ):
            source = f"class A:\n    {first}\n    {second}\n    def test_x(self, x): ..."
            self.assertEqual(lost_marks(source), found)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
